"""A decoder that is fed the ground-truth words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fluidjax import layers
from fluidjax.contrib.decoder.state import InitState, StateCell
from fluidjax.framework import Variable
from fluidjax.layer_helper import LayerHelper

__all__ = ["TrainingDecoder"]


class _Memory:
    """A state stored in the memory of a DynamicRNN."""

    def __init__(self, rnn: layers.DynamicRNN, state: InitState) -> None:
        self._rnn = rnn
        self._value = rnn.memory(init=state.value, need_reorder=state.need_reorder)

    def get(self) -> Variable:
        return self._value

    def update(self, value: Variable) -> None:
        self._rnn.update_memory(self._value, value)


class TrainingDecoder:
    """A DynamicRNN whose memories are the states of a StateCell.

    ::

        decoder = TrainingDecoder(cell)
        with decoder.block():
            word = decoder.step_input(embedded_words)
            decoder.state_cell.compute_state(inputs={"x": word})
            decoder.output(layers.fc(decoder.state_cell.get_state("h"), size=vocabulary, act="softmax"))
            decoder.state_cell.update_states()
        scores = decoder()

    Args:
        state_cell: defines the step.
        name: prefix for variable names.
    """

    BEFORE_DECODER = 0
    IN_DECODER = 1
    AFTER_DECODER = 2

    def __init__(self, state_cell: StateCell, name: str | None = None) -> None:
        self._helper = LayerHelper("training_decoder", name=name)
        self._status = TrainingDecoder.BEFORE_DECODER
        self._dynamic_rnn = layers.DynamicRNN()
        self._state_cell = state_cell
        state_cell._enter_decoder(self)

    def _hold(self, state: InitState) -> _Memory:
        return _Memory(self._dynamic_rnn, state)

    @contextmanager
    def block(self) -> Iterator[None]:
        """Context manager; layers written inside it make up one step. May be used once."""
        if self._status != TrainingDecoder.BEFORE_DECODER:
            raise ValueError(
                "TrainingDecoder.block() was called before. A decoder has one block; make another decoder."
            )
        self._status = TrainingDecoder.IN_DECODER
        with self._dynamic_rnn.block():
            yield
        self._status = TrainingDecoder.AFTER_DECODER
        self._state_cell._leave_decoder(self)

    @property
    def state_cell(self) -> StateCell:
        """The cell, inside the block."""
        self._require_in_block("state_cell")
        return self._state_cell

    @property
    def dynamic_rnn(self) -> layers.DynamicRNN:
        """The DynamicRNN that runs the steps."""
        return self._dynamic_rnn

    @property
    def type(self) -> int:
        """0, the type code of training decoders."""
        return 0

    def step_input(self, x: Variable) -> Variable:
        """``DynamicRNN.step_input``, inside the block."""
        self._require_in_block("step_input")
        return self._dynamic_rnn.step_input(x)

    def static_input(self, x: Variable) -> Variable:
        """``DynamicRNN.static_input``, inside the block."""
        self._require_in_block("static_input")
        return self._dynamic_rnn.static_input(x)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The outputs of all steps, with the LoD of the step inputs; to be called after the block.

        Raises:
            ValueError: called before the end of the block.
        """
        if self._status != TrainingDecoder.AFTER_DECODER:
            raise ValueError("TrainingDecoder has no output before its block is closed. Call it after the block.")
        return self._dynamic_rnn(*args, **kwargs)

    def output(self, *outputs: Variable) -> None:
        """Mark results of a step as outputs, inside the block."""
        self._require_in_block("output")
        self._dynamic_rnn.output(*outputs)

    def _require_in_block(self, method: str) -> None:
        if self._status != TrainingDecoder.IN_DECODER:
            raise ValueError(f"TrainingDecoder.{method} was used outside the block. Use it in `with decoder.block():`.")
