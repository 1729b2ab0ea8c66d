"""The states of a decoder, and the step that updates them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from fluidjax import layers
from fluidjax.framework import Variable
from fluidjax.layer_helper import LayerHelper

__all__ = ["Decoder", "HeldState", "InitState", "StateCell"]


class InitState:
    """The initial value of a state: a variable, or a constant with as many rows as another variable.

    Args:
        init: the initial value; if given, the other arguments are ignored.
        shape: of the constant; its first entry is replaced by the number of rows of ``init_boot``.
        value: the constant.
        init_boot: determines the number of rows.
        need_reorder: the rows are in the original order of the sequences, which a TrainingDecoder sorts by length.
        dtype: of the constant.

    Raises:
        ValueError: neither ``init`` nor ``init_boot`` is given, or the latter without ``shape``.
    """

    def __init__(
        self,
        init: Variable | None = None,
        shape: Sequence[int] | None = None,
        value: float = 0.0,
        init_boot: Variable | None = None,
        need_reorder: bool = False,
        dtype: Any = "float32",
    ) -> None:
        if init is None:
            if init_boot is None:
                raise ValueError("InitState has neither init nor init_boot. Pass init_boot to get the number of rows.")
            if shape is None:
                raise ValueError("InitState has init_boot without shape. Pass the shape, such as [-1, size].")
            init = layers.fill_constant_batch_size_like(input=init_boot, value=value, shape=list(shape), dtype=dtype)
        self._init = init
        self._need_reorder = need_reorder

    @property
    def value(self) -> Variable:
        """The initial value."""
        return self._init

    @property
    def need_reorder(self) -> bool:
        """Whether the rows must be sorted along with the sequences."""
        return self._need_reorder


class HeldState(Protocol):
    """How a decoder carries one state from step to step."""

    def get(self) -> Variable:
        """The value at the start of the step."""

    def update(self, value: Variable) -> None:
        """Set the value at the start of the next step."""


class Decoder(Protocol):
    """What a StateCell requires of a decoder."""

    def _hold(self, state: InitState) -> HeldState: ...


class StateCell:
    """The inputs and states of a decoder's step, and the function that computes the new states.

    ::

        cell = StateCell(inputs={"x": None}, states={"h": InitState(init=context)}, out_state="h")

        @cell.state_updater
        def update(cell):
            cell.set_state("h", layers.fc([cell.get_state("h"), cell.get_input("x")], size=32, act="tanh"))

    Args:
        inputs: names of the step's inputs, with their variables or None.
        states: InitStates by name.
        out_state: the state that represents the result of the step.
        name: prefix for variable names.

    Raises:
        ValueError: a state is not an InitState, or ``out_state`` does not exist.
    """

    def __init__(
        self,
        inputs: Mapping[str, Variable | None],
        states: Mapping[str, InitState],
        out_state: str,
        name: str | None = None,
    ) -> None:
        for key, state in states.items():
            if not isinstance(state, InitState):
                raise ValueError(f"StateCell: state {key!r} must be an InitState, received {type(state).__name__}.")
        if out_state not in states:
            raise ValueError(f"StateCell: out_state {out_state!r} is none of the states {list(states)}. Name one.")
        self._helper = LayerHelper("state_cell", name=name)
        self._inputs = dict(inputs)
        self._first = dict(states)
        self._out_state = out_state
        self._current: dict[str, Any] = dict(states)
        self._held: dict[str, HeldState] = {}
        self._decoder: Decoder | None = None
        self._updater: Callable[[StateCell], Any] | None = None

    def _enter_decoder(self, decoder: Decoder) -> None:
        if self._decoder is not None:
            raise ValueError("StateCell is in a decoder already. Close that decoder's block, or make another cell.")
        self._decoder = decoder
        self._current, self._held = dict(self._first), {}

    def _leave_decoder(self, decoder: Decoder) -> None:
        if self._decoder is not decoder:
            raise ValueError("StateCell is not in this decoder, so it cannot leave it. Leave the one it entered.")
        self._decoder = None

    def _start(self) -> None:
        """Inside a decoder's block, obtain the states from the decoder; called on first use."""
        if self._decoder is None or self._held:
            return
        for name, state in self._first.items():
            self._held[name] = self._decoder._hold(state)
            self._current[name] = self._held[name].get()

    def get_state(self, state_name: str) -> Any:
        """The value of a state in this step (outside a decoder, its InitState).

        Raises:
            ValueError: there is no such state.
        """
        self._start()
        if state_name not in self._current:
            raise ValueError(f"StateCell has no state {state_name!r}, only {list(self._current)}.")
        return self._current[state_name]

    def get_input(self, input_name: str) -> Variable:
        """An input's variable in this step.

        Raises:
            ValueError: there is no such input, or it has not been set.
        """
        value = self._inputs.get(input_name)
        if value is None:
            raise ValueError(
                f"StateCell has no value for input {input_name!r} (its inputs: {list(self._inputs)}). Pass it to"
                " compute_state."
            )
        return value

    def set_state(self, state_name: str, state_value: Variable) -> None:
        """Set the new value of a state, which the next step uses once ``update_states`` is called."""
        self._current[state_name] = state_value

    def state_updater(self, updater: Callable[[StateCell], Any]) -> Callable[[StateCell], None]:
        """Decorator for the function that computes new states from ``get_state`` and ``get_input``."""
        self._updater = updater

        def for_others(state_cell: StateCell) -> None:
            if state_cell is self:
                raise TypeError("a state updater is called by its own cell. Call compute_state instead.")
            updater(state_cell)

        return for_others

    def compute_state(self, inputs: Mapping[str, Variable]) -> None:
        """Run the updater on the given inputs.

        Raises:
            ValueError: an unknown input, or no updater.
        """
        self._start()
        for name, value in inputs.items():
            if name not in self._inputs:
                raise ValueError(f"StateCell has no input {name!r}, only {list(self._inputs)}. Name it in inputs.")
            self._inputs[name] = value
        if self._updater is None:
            raise ValueError("StateCell has no updater. Decorate the function of a step with state_updater.")
        self._updater(self)

    def update_states(self) -> None:
        """Pass the current states on to the decoder's next step."""
        self._start()
        for name, held in self._held.items():
            held.update(self._current[name])

    def out_state(self) -> Any:
        """The state that represents the result of the step."""
        return self._current[self._out_state]
