"""Decoders, and the loop that advances one step by step until every sequence has finished."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np

from fluidjax.framework import Variable, default_main_program
from fluidjax.layers import nn, tensor
from fluidjax.layers._control_flow.basic import array_read, array_write, create_array, equal, increment, less_equal
from fluidjax.layers._control_flow.blocks import While
from fluidjax.layers._rnn.cells import swap_batch_and_time
from fluidjax.layers.utils import flatten, map_structure
from fluidjax.writing.checks import convert_dtype

__all__ = ["BeamSearchDecoder", "Decoder", "dynamic_decode"]


class Decoder:
    """The protocol of `dynamic_decode`: initialize once, step until all sequences have finished, finalize."""

    def initialize(self, inits: Any) -> tuple[Any, Any, Variable]:
        """(first inputs, first states, finished flags: bool)."""
        raise NotImplementedError(f"{type(self).__name__} must define initialize(inits).")

    def step(self, time: Variable, inputs: Any, states: Any, **kwargs: Any) -> tuple[Any, Any, Any, Variable]:
        """(outputs, next states, next inputs, finished flags) of one step."""
        raise NotImplementedError(f"{type(self).__name__} must define step(time, inputs, states).")

    def finalize(self, outputs: Any, final_states: Any, sequence_lengths: Variable) -> tuple[Any, Any]:
        """Final (outputs, states), from those of all steps, [time, ...]; unchanged if not overridden."""
        raise NotImplementedError(f"{type(self).__name__} does not define finalize.")


class BeamSearchDecoder(Decoder):
    """Beam search over a cell.

    Args:
        cell: RNNCell whose outputs, after ``output_fn``, are logits over the vocabulary.
        start_token, end_token: token ids.
        beam_size: number of beams.
        embedding_fn: maps token ids to inputs of the cell.
        output_fn: maps outputs of the cell to logits.
    """

    OutputWrapper = namedtuple("OutputWrapper", ("scores", "predicted_ids", "parent_ids"))
    StateWrapper = namedtuple("StateWrapper", ("cell_states", "log_probs", "finished", "lengths"))

    def __init__(
        self,
        cell: Any,
        start_token: int,
        end_token: int,
        beam_size: int,
        embedding_fn: Callable[[Variable], Any] | None = None,
        output_fn: Callable[[Any], Variable] | None = None,
    ):
        self.cell = cell
        self.embedding_fn = embedding_fn
        self.output_fn = output_fn
        self.start_token = start_token
        self.end_token = end_token
        self.beam_size = beam_size

    @staticmethod
    def tile_beam_merge_with_batch(x: Variable, beam_size: int) -> Variable:
        """Expand [batch, ...] to [batch * beam_size, ...], repeating each row ``beam_size`` times."""
        x = nn.unsqueeze(x, [1])
        times = [1] * len(x.shape)
        times[1] = beam_size
        x = nn.expand(x, times)
        x = nn.transpose(x, [*range(2, len(x.shape)), 0, 1])
        x = nn.reshape(x, shape=[0] * (len(x.shape) - 2) + [-1])
        return nn.transpose(x, [len(x.shape) - 1, *range(len(x.shape) - 1)])

    def _split_batch_beams(self, x: Variable) -> Variable:
        return nn.reshape(x, shape=[-1, self.beam_size, *x.shape[1:]])

    def _merge_batch_beams(self, x: Variable) -> Variable:
        return nn.reshape(x, shape=[-1, *x.shape[2:]])

    def _expand_to_beam_size(self, x: Variable) -> Variable:
        x = nn.unsqueeze(x, [1])
        times = [1] * len(x.shape)
        times[1] = self.beam_size
        return nn.expand(x, times)

    def _mask_probs(self, probs: Variable, finished: Variable) -> Variable:
        """Force finished beams to continue with the end token only."""
        finished = tensor.cast(finished, dtype=probs.dtype)
        spread = nn.expand(nn.unsqueeze(finished, [2]), [1, 1, self.vocab_size])
        ended = nn.elementwise_mul(spread, self.noend_mask_tensor, axis=-1)
        return ended - nn.elementwise_mul(probs, (finished - 1), axis=0)

    def _gather(self, x: Variable, indices: Variable, batch_size: Variable) -> Variable:
        """x[b, indices[b, k]] for each batch entry b."""
        if batch_size.dtype != indices.dtype:
            batch_size = tensor.cast(batch_size, indices.dtype)
        batch_size.stop_gradient = True
        rows = nn.unsqueeze(tensor.range(0, batch_size, 1, dtype=indices.dtype), [1])
        where = nn.stack([nn.expand(rows, [1, self.beam_size]), indices], axis=2)
        where.stop_gradient = True
        return nn.gather_nd(x, where)

    def initialize(self, initial_cell_states: Any) -> tuple[Any, Any, Variable]:
        """(first inputs, StateWrapper, finished [batch, beam]) from the cell's initial states [batch, ...]."""
        self.kinf = 1e9
        state = flatten(initial_cell_states)[0]
        self.batch_size = nn.shape(state)[0]
        self.start_token_tensor = tensor.fill_constant(shape=[1], dtype="int64", value=self.start_token)
        self.end_token_tensor = tensor.fill_constant(shape=[1], dtype="int64", value=self.end_token)
        init_cell_states = map_structure(self._expand_to_beam_size, initial_cell_states)
        init_inputs = self._expand_to_beam_size(nn.expand(self.start_token_tensor, [self.batch_size]))
        first = np.array([[0.0] + [-self.kinf] * (self.beam_size - 1)], dtype="float32")
        log_probs = nn.expand(tensor.assign(first), [self.batch_size, 1])
        init_finished = tensor.fill_constant_batch_size_like(
            input=state, shape=[-1, self.beam_size], dtype="bool", value=False, force_cpu=True
        )
        init_lengths = tensor.zeros_like(init_inputs)
        if self.embedding_fn is not None:
            init_inputs = self.embedding_fn(init_inputs)
        states = self.StateWrapper(init_cell_states, log_probs, init_finished, init_lengths)
        return init_inputs, states, init_finished

    def _beam_search_step(self, logits: Variable, next_cell_states: Any, beam_state: Any) -> tuple[Any, Any]:
        """(OutputWrapper, StateWrapper) from logits [batch, beam, vocabulary]."""
        self.vocab_size = logits.shape[-1]
        self.vocab_size_tensor = tensor.fill_constant(shape=[1], dtype="int64", value=self.vocab_size)
        only_end = [-self.kinf] * self.vocab_size
        only_end[self.end_token] = 0
        self.noend_mask_tensor = tensor.assign(np.array(only_end, "float32"))
        step_log_probs = self._mask_probs(nn.log(nn.softmax(logits)), beam_state.finished)
        log_probs = nn.elementwise_add(x=step_log_probs, y=beam_state.log_probs, axis=0)
        scores = nn.reshape(log_probs, [-1, self.beam_size * self.vocab_size])
        topk_scores, topk_indices = nn.topk(input=scores, k=self.beam_size)
        beams = nn.elementwise_floordiv(topk_indices, self.vocab_size_tensor)
        tokens = nn.elementwise_mod(topk_indices, self.vocab_size_tensor)
        flat = nn.reshape(log_probs, [-1, self.beam_size * self.vocab_size])
        next_log_probs = self._gather(flat, topk_indices, self.batch_size)
        next_cell_states = map_structure(lambda x: self._gather(x, beams, self.batch_size), next_cell_states)
        finished = self._gather(beam_state.finished, beams, self.batch_size)
        lengths = self._gather(beam_state.lengths, beams, self.batch_size)
        lengths = lengths + tensor.cast(nn.logical_not(finished), beam_state.lengths.dtype)
        finished = nn.logical_or(finished, equal(tokens, self.end_token_tensor))
        output = self.OutputWrapper(topk_scores, tokens, beams)
        return output, self.StateWrapper(next_cell_states, next_log_probs, finished, lengths)

    def step(self, time: Variable, inputs: Any, states: Any, **kwargs: Any) -> tuple[Any, Any, Any, Variable]:
        """Run the cell on all beams and select the best continuations."""
        inputs = map_structure(self._merge_batch_beams, inputs)
        cell_states = map_structure(self._merge_batch_beams, states.cell_states)
        cell_outputs, next_cell_states = self.cell(inputs, cell_states, **kwargs)
        cell_outputs = map_structure(self._split_batch_beams, cell_outputs)
        next_cell_states = map_structure(self._split_batch_beams, next_cell_states)
        if self.output_fn is not None:
            cell_outputs = self.output_fn(cell_outputs)
        output, state = self._beam_search_step(cell_outputs, next_cell_states, states)
        sample_ids = output.predicted_ids
        sample_ids.stop_gradient = True
        next_inputs = self.embedding_fn(sample_ids) if self.embedding_fn else sample_ids
        return output, state, next_inputs, state.finished

    def finalize(self, outputs: Any, final_states: Any, sequence_lengths: Variable) -> tuple[Variable, Any]:
        """(token ids [time, batch, beam], backtracked along the beams; states)."""
        return nn.gather_tree(outputs.predicted_ids, outputs.parent_ids), final_states


def _keep_ended(state: Variable, new_state: Variable, ended: Variable) -> Variable:
    """state where the sequence has finished, new_state elsewhere."""
    dtype = state.dtype
    is_bool = convert_dtype(dtype) == "bool"
    if is_bool:
        state, new_state = tensor.cast(state, "float32"), tensor.cast(new_state, "float32")
    if ended.dtype != state.dtype:
        ended = tensor.cast(ended, dtype=state.dtype)
        # Gradients of a bool would otherwise be summed up.
        ended.stop_gradient = True
    kept = nn.elementwise_mul(state, ended, axis=0) - nn.elementwise_mul(new_state, (ended - 1), axis=0)
    return tensor.cast(kept, dtype=dtype) if is_bool else kept


def _array_outside(dtype: Any) -> Variable:
    """A tensor array in the block enclosing the loop being written."""
    program = default_main_program()
    inner = program.current_block_idx
    program.current_block_idx = program.current_block().parent_idx
    array = create_array(dtype)
    program.current_block_idx = inner
    return array


class _Decoding:
    """The variables of one dynamic_decode call."""

    def __init__(self, decoder: Decoder, inits: Any, max_step_num: int | None, is_test: bool):
        self.decoder = decoder
        self.is_test = is_test
        self.inputs, self.states, self.finished = decoder.initialize(inits)
        self.finished.stop_gradient = True
        self.step_idx = tensor.fill_constant(shape=[1], dtype="int64", value=0)
        self.cond = nn.logical_not(nn.reduce_all(self.finished))
        self.max_step_num: Variable | None = None
        if max_step_num is not None:
            self.max_step_num = tensor.fill_constant(shape=[1], dtype="int64", value=max_step_num)
        self.loop = While(self.cond, is_test=is_test)
        self.lengths = tensor.cast(tensor.zeros_like(self.finished), "int64")
        self.lengths.stop_gradient = True
        self.outputs_arrays: Any = None
        if not is_test:
            self.inputs_arrays = map_structure(lambda x: array_write(x, self.step_idx), self.inputs)
            self.states_arrays = map_structure(lambda x: array_write(x, self.step_idx), self.states)

    def step(self, impute_finished: bool, kwargs: dict[str, Any]) -> None:
        """Write one step into the loop's block."""
        inputs, states = self.inputs, self.states
        if not self.is_test:
            inputs = map_structure(lambda array: array_read(array, self.step_idx), self.inputs_arrays)
            states = map_structure(lambda array: array_read(array, self.step_idx), self.states_arrays)
        outputs, next_states, next_inputs, finished = self.decoder.step(self.step_idx, inputs, states, **kwargs)
        finished = nn.logical_or(finished, self.finished)
        alive = tensor.cast(nn.logical_not(self.finished), self.lengths.dtype)
        lengths = nn.elementwise_add(self.lengths, alive)
        if impute_finished:
            next_states = map_structure(lambda x, y: _keep_ended(x, y, self.finished), states, next_states)
        self.outputs_arrays = map_structure(lambda x: _array_outside(x.dtype), outputs)
        map_structure(self._write, outputs, self.outputs_arrays)
        increment(x=self.step_idx, value=1.0, in_place=True)
        self._carry(next_inputs, next_states, finished, lengths)
        self._go_on()

    def _write(self, x: Variable, array: Variable) -> None:
        array_write(x, i=self.step_idx, array=array)

    def _carry(self, next_inputs: Any, next_states: Any, finished: Variable, lengths: Variable) -> None:
        if self.is_test:
            map_structure(tensor.assign, next_inputs, self.inputs)
            map_structure(tensor.assign, next_states, self.states)
        else:
            map_structure(self._write, next_inputs, self.inputs_arrays)
            map_structure(self._write, next_states, self.states_arrays)
        tensor.assign(finished, self.finished)
        tensor.assign(lengths, self.lengths)

    def _go_on(self) -> None:
        if self.max_step_num is None:
            nn.logical_not(nn.reduce_all(self.finished), self.cond)
            return
        running = nn.logical_not(nn.reduce_all(self.finished))
        nn.logical_and(running, less_equal(self.step_idx, self.max_step_num), self.cond)

    def results(self) -> tuple[Any, Any]:
        """(outputs of all steps, [time, ...]; final states)."""

        def stacked(array: Variable) -> Variable:
            return tensor.tensor_array_to_tensor(array, axis=0, use_stack=True)[0]

        outputs = map_structure(stacked, self.outputs_arrays)
        if self.is_test:
            return outputs, self.states
        return outputs, map_structure(lambda array: array_read(array, self.step_idx), self.states_arrays)


def dynamic_decode(
    decoder: Decoder,
    inits: Any = None,
    max_step_num: int | None = None,
    output_time_major: bool = False,
    impute_finished: bool = False,
    is_test: bool = False,
    return_length: bool = False,
    **kwargs: Any,
) -> tuple:
    """Run a decoder until every sequence has finished or ``max_step_num`` is reached.

    Args:
        decoder: the decoder to run.
        inits: passed to ``decoder.initialize``.
        max_step_num: index of the last step to run (one less than the number of steps); None for no limit.
        output_time_major: outputs [time, batch, ...] instead of [batch, time, ...].
        impute_finished: freeze the states of finished sequences.
        is_test: no gradient will be needed, so intermediate steps need not be kept.
        return_length: also return the sequence lengths.
        kwargs: passed to ``decoder.step``.

    Returns:
        (outputs, final states) and, with ``return_length``, the lengths of the sequences.
    """
    run = _Decoding(decoder, inits, max_step_num, is_test)
    with run.loop.block():
        run.step(impute_finished, kwargs)
    outputs, states = run.results()
    if type(decoder).finalize is not Decoder.finalize:
        outputs, states = decoder.finalize(outputs, states, run.lengths)
    if not output_time_major:
        outputs = map_structure(swap_batch_and_time, outputs)
    return (outputs, states, run.lengths) if return_length else (outputs, states)
