"""Input sources of a BasicDecoder: given sequences, its own best tokens, or sampled tokens."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any

from fluidjax.framework import Variable
from fluidjax.layers import nn, tensor
from fluidjax.layers._control_flow.basic import equal, less_equal
from fluidjax.layers._rnn.decoders import Decoder
from fluidjax.layers.utils import map_structure
from fluidjax.writing.checks import convert_dtype

__all__ = [
    "BasicDecoder",
    "DecodeHelper",
    "GreedyEmbeddingHelper",
    "SampleEmbeddingHelper",
    "TrainingHelper",
]


class DecodeHelper:
    """Chooses tokens from a cell's outputs and produces the next inputs from them."""

    def initialize(self) -> tuple[Any, Variable]:
        """(first inputs, finished flags)."""
        raise NotImplementedError(f"{type(self).__name__} must define initialize().")

    def sample(self, time: Variable, outputs: Variable, states: Any) -> Variable:
        """Token ids chosen from the outputs."""
        raise NotImplementedError(f"{type(self).__name__} must define sample(time, outputs, states).")

    def next_inputs(
        self, time: Variable, outputs: Variable, states: Any, sample_ids: Variable
    ) -> tuple[Variable, Any, Any]:
        """(finished flags, next inputs, next states)."""
        raise NotImplementedError(f"{type(self).__name__} must define next_inputs(...).")


class TrainingHelper(DecodeHelper):
    """Feeds given sequences as inputs (teacher forcing), as in training.

    Args:
        inputs: Variables [batch, time, ...], or [time, batch, ...] if ``time_major``; may be nested.
        sequence_length: int Variable [batch].
        time_major: layout of inputs.
    """

    def __init__(self, inputs: Any, sequence_length: Variable, time_major: bool = False):
        self.inputs = inputs
        self.sequence_length = sequence_length
        self.time_major = time_major
        # One more step of zeros, so that the last step has a next input.
        self.inputs_ = map_structure(self._longer, inputs)

    def _longer(self, x: Variable) -> Variable:
        rest = len(x.shape)
        paddings = [0, 1] + [0, 0] * (rest - 1) if self.time_major else [0, 0, 0, 1] + [0, 0] * (rest - 2)
        return nn.pad(x, paddings=paddings)

    def initialize(self) -> tuple[Any, Variable]:
        """(first step of the inputs, which sequences are empty)."""
        zero = tensor.fill_constant(shape=[1], dtype=self.sequence_length.dtype, value=0)
        init_finished = equal(self.sequence_length, zero)
        init_inputs = map_structure(lambda x: x[0] if self.time_major else x[:, 0], self.inputs)
        return init_inputs, init_finished

    def sample(self, time: Variable, outputs: Variable, states: Any) -> Variable:
        """The most probable token of each sequence."""
        return tensor.argmax(outputs, axis=-1)

    def next_inputs(
        self, time: Variable, outputs: Variable, states: Any, sample_ids: Variable
    ) -> tuple[Variable, Any, Any]:
        """The next step of the given inputs."""
        if convert_dtype(time.dtype) != "int32":
            time = tensor.cast(time, "int32")
        length = self.sequence_length
        if convert_dtype(length.dtype) != "int32":
            length = tensor.cast(length, "int32")
        next_time = time + 1
        finished = less_equal(length, next_time)
        axes = [0 if self.time_major else 1]

        def row(x: Variable) -> Variable:
            return nn.squeeze(nn.slice(x, axes=axes, starts=[next_time], ends=[next_time + 1]), axes=axes)

        return finished, map_structure(row, self.inputs_), states


class GreedyEmbeddingHelper(DecodeHelper):
    """Feeds back the embedded best token of the previous step (greedy decoding).

    Args:
        embedding_fn: maps token ids to inputs.
        start_tokens: int64 Variable [batch].
        end_token: the token that ends a sequence.
    """

    def __init__(self, embedding_fn: Callable[[Variable], Any], start_tokens: Variable, end_token: int):
        self.embedding_fn = embedding_fn
        self.start_tokens = start_tokens
        self.end_token = tensor.fill_constant(shape=[1], dtype="int64", value=end_token)

    def initialize(self) -> tuple[Any, Variable]:
        """(the embedded start tokens, all unfinished)."""
        init_finished = tensor.fill_constant_batch_size_like(
            input=self.start_tokens, shape=[-1], dtype="bool", value=False, force_cpu=True
        )
        return self.embedding_fn(self.start_tokens), init_finished

    def sample(self, time: Variable, outputs: Variable, states: Any) -> Variable:
        """The most probable token of each sequence."""
        return tensor.argmax(outputs, axis=-1)

    def next_inputs(
        self, time: Variable, outputs: Variable, states: Any, sample_ids: Variable
    ) -> tuple[Variable, Any, Any]:
        """The embedded tokens; sequences that chose the end token are finished."""
        finished = equal(sample_ids, self.end_token)
        return finished, self.embedding_fn(sample_ids), states


class SampleEmbeddingHelper(GreedyEmbeddingHelper):
    """Feeds back embedded tokens sampled from softmax(outputs / softmax_temperature).

    Args:
        embedding_fn, start_tokens, end_token: as for GreedyEmbeddingHelper.
        softmax_temperature: None for 1.
        seed: of the sampling; None for a different one each run.
    """

    def __init__(
        self,
        embedding_fn: Callable[[Variable], Any],
        start_tokens: Variable,
        end_token: int,
        softmax_temperature: float | None = None,
        seed: int | None = None,
    ):
        super().__init__(embedding_fn, start_tokens, end_token)
        self.softmax_temperature = None
        if softmax_temperature is not None:
            self.softmax_temperature = tensor.fill_constant(shape=[1], dtype="float32", value=softmax_temperature)
        self.seed = seed

    def sample(self, time: Variable, outputs: Variable, states: Any) -> Variable:
        """A token sampled for each sequence."""
        logits = outputs if self.softmax_temperature is None else outputs / self.softmax_temperature
        probs = nn.softmax(logits)
        seed = 0 if self.seed is None else self.seed
        return nn.sampling_id(probs, seed=seed, dtype=self.start_tokens.dtype)


class BasicDecoder(Decoder):
    """A decoder composed of a cell and a helper.

    Args:
        cell: RNNCell.
        helper: DecodeHelper.
        output_fn: applied to the cell's outputs before they reach the helper.
    """

    OutputWrapper = namedtuple("OutputWrapper", ("cell_outputs", "sample_ids"))

    def __init__(self, cell: Any, helper: DecodeHelper, output_fn: Callable[[Any], Variable] | None = None):
        self.cell = cell
        self.helper = helper
        self.output_fn = output_fn

    def initialize(self, initial_cell_states: Any) -> tuple[Any, Any, Variable]:
        """(the helper's first inputs, the cell's states, finished flags)."""
        initial_inputs, initial_finished = self.helper.initialize()
        return initial_inputs, initial_cell_states, initial_finished

    def step(self, time: Variable, inputs: Any, states: Any, **kwargs: Any) -> tuple[Any, Any, Any, Variable]:
        """Run one step of the cell; the helper chooses tokens and produces the next inputs."""
        cell_outputs, cell_states = self.cell(inputs, states, **kwargs)
        if self.output_fn is not None:
            cell_outputs = self.output_fn(cell_outputs)
        sample_ids = self.helper.sample(time=time, outputs=cell_outputs, states=cell_states)
        sample_ids.stop_gradient = True
        finished, next_inputs, next_states = self.helper.next_inputs(
            time=time, outputs=cell_outputs, states=cell_states, sample_ids=sample_ids
        )
        return self.OutputWrapper(cell_outputs, sample_ids), next_states, next_inputs, finished
