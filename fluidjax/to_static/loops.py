"""A ``while`` or ``for`` on a variable: the body is written once, into the block of a loop.

The names carried by the loop are found by a trial: the body is written and then discarded. A name whose value it
replaces is carried in a variable of its own, initialised with a copy so that other names keep their values. Numbers
are variables in the trial, because a counter that remained a Python number would fix the outcome of the body's ifs;
a number that the body does not change is a number again afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fluidjax.base.errors import explain
from fluidjax.framework import Variable
from fluidjax.layers._control_flow.blocks import While
from fluidjax.layers.tensor import assign, cast
from fluidjax.to_static.checks import ask_noted
from fluidjax.to_static.sequences import VariableList, grown
from fluidjax.to_static.state import State
from fluidjax.to_static.trial import trial
from fluidjax.to_static.values import (
    INTEGERS,
    Number,
    Optional,
    Unset,
    absent,
    as_number,
    can_be_variable,
    copied,
    equal,
    is_container,
    is_variable,
    items_of,
    like,
    may_be_none,
    plain_number,
    presence,
    remade,
    same_form,
    to_variable,
    truth,
)


def loop(test: Callable[[], Any], body: Callable[[], Any], state: State) -> None:
    """Write ``while test(): body()`` as a loop of the program."""
    before = state.read()
    start, after = _tried(test, body, state, before)
    carried = _Carried(state)
    each = zip(state.names, before, start, after, strict=True)
    first = [carried.value(name, b, s, a) for name, b, s, a in each]
    state.write([copied(value) for value in first])
    condition = assign(truth(test()))
    block = While(condition)
    with block.block():
        state.write([copied(value) for value in first])
        body()
        carried.keep(first, state.read())
        state.write([copied(value) for value in first])
        assign(truth(test()), condition)
    state.write([_put_back(b, f) for b, f in zip(before, first, strict=True)])
    ask_noted()


def _tried(
    test: Callable[[], Any], body: Callable[[], Any], state: State, before: tuple[Any, ...]
) -> tuple[list[Any], list[Any]]:
    """(values of the names before the body, values after it), for one iteration that is written and discarded."""
    try:
        with trial():
            start = [_promoted(copied(value)) for value in before]
            state.write([copied(value) for value in start])
            test()
            body()
            return start, list(state.read())
    finally:
        state.write(before)


def _promoted(value: Any) -> Any:
    if is_container(value):
        return remade(value, [_promoted(item) for item in items_of(value)])
    return to_variable(value) if isinstance(plain_number(value), (bool, int, float)) else value


def _put_back(before: Any, value: Any) -> Any:
    """The value after the loop; an existing list is refilled in place, so that its other names see the items."""
    if isinstance(before, list) and same_form(before, value):
        before[:] = [_put_back(b, v) for b, v in zip(before, value, strict=True)]
        return before
    return value


class _Carried:
    """The variables that a loop carries."""

    def __init__(self, state: State):
        self.state = state
        self.variables: set[int] = set()

    def value(self, name: str, before: Any, start: Any, after: Any) -> Any:
        """What a name holds at the start of each iteration.

        Args:
            before: its value before the loop.
            start, after: its values in the trial, where numbers are variables, before the body and after it.
        """
        if isinstance(before, list) and (
            isinstance(after, VariableList) or (isinstance(after, list) and len(before) != len(after))
        ):
            return grown(name, before, after)
        if same_form(before, after):
            each = enumerate(zip(*map(items_of, (before, start, after)), strict=True))
            return remade(before, [self.value(f"{name}[{i}]", *values) for i, values in each])
        if after is start or (not is_variable(after) and equal(before, after)):
            return before
        if isinstance(after, Unset):
            return Unset(name)
        if isinstance(before, Unset):
            return self._unset(name, before, after)
        if may_be_none(before, after):
            return self._optional(name, before, after)
        if can_be_variable(start) and can_be_variable(after):
            return self._variable(name, before, after)
        return Unset(name, _changing(name, before, after))

    def _unset(self, name: str, before: Unset, after: Any) -> Any:
        """A name first assigned in the body: carried if it is read after the loop."""
        if not self.state.needed(name.split("[")[0]):
            return before
        if is_container(after):
            return remade(after, [self._unset(f"{name}[{i}]", before, a) for i, a in enumerate(items_of(after))])
        if not can_be_variable(after):
            return Unset(name, _changing(name, before, after))
        return self._noted(absent(after) if is_variable(after) else absent(_described_by(after)))

    def _optional(self, name: str, before: Any, after: Any) -> Variable:
        """A name that is None before the loop, or perhaps after an iteration."""
        if before is None:
            value = self._noted(absent(_described_by(after)))
        else:
            value = self._variable(name, before, before if after is None else after)
        return Optional.over(value, self._noted(assign(presence(before))))

    def _variable(self, name: str, before: Any, after: Any) -> Variable:
        if is_variable(before):
            if is_variable(after) and after.dtype != before.dtype and not isinstance(after, Number):
                if not isinstance(before, Number):
                    raise TypeError(_retyped(name, before, after))
                before = cast(before, after.dtype)
            copy = assign(before)
            copy.stop_gradient = copy.dtype in INTEGERS
            return self._noted(as_number(copy) if isinstance(before, Number) else copy)
        if is_variable(after) and isinstance(plain_number(before), (bool, int, float)):
            return self._noted(like(after, plain_number(before)))
        return self._noted(to_variable(before))

    def _noted(self, variable: Variable) -> Variable:
        self.variables.add(id(variable))
        return variable

    def keep(self, first: Sequence[Any], last: Sequence[Any]) -> None:
        """At the end of an iteration, carry over what the names hold."""
        pairs: list[tuple[Variable, Any]] = []
        for name, value, new in zip(self.state.names, first, last, strict=True):
            self._pairs(name, value, new, pairs)
        # Read a variable before writing it, where another takes its value.
        news = [assign(new) if id(new) in self.variables else new for _, new in pairs]
        for (variable, _), new in zip(pairs, news, strict=True):
            if variable.dtype != new.dtype:
                new = cast(new, variable.dtype)
            assign(new, variable)

    def _pairs(self, name: str, value: Any, new: Any, pairs: list[tuple[Variable, Any]]) -> None:
        if same_form(value, new):
            for index, (v, n) in enumerate(zip(items_of(value), items_of(new), strict=True)):
                self._pairs(f"{name}[{index}]", v, n, pairs)
        elif id(value) in self.variables and new is not value:
            if isinstance(value, Optional):
                pairs.append((value.present, presence(new)))
                if new is None:
                    return
            if not can_be_variable(new):
                raise TypeError(_changing(name, value, new))
            alike = like(value, plain_number(new)) if not is_variable(new) and value.shape else to_variable(new)
            pairs.append((value, alike))


def _described_by(value: Any) -> Variable:
    return to_variable(value)


def _changing(name: str, before: Any, after: Any) -> str:
    return explain(
        f"{name} is used after a loop on a variable that changes it",
        "a variable or a number, to be carried from round to round",
        f"{before!r:.60} before the loop and {after!r:.60} after a round",
        "let a Python value bound the loop, or keep what changes in variables",
    )


def _retyped(name: str, before: Variable, after: Variable) -> str:
    return explain(
        f"{name} changes its element type in a loop on a variable",
        before.dtype.name,
        after.dtype.name,
        f"cast it before the loop: {name} = {name}.astype(...)",
    )
