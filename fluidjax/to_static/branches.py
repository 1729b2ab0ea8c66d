"""An ``if`` on a variable: write each branch into a block of its own and merge what they assign."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fluidjax.base.errors import explain
from fluidjax.framework import Variable, default_main_program
from fluidjax.layers._control_flow.branches import ConditionalBlock
from fluidjax.layers._control_flow.ragged import select_input
from fluidjax.layers.nn import logical_not
from fluidjax.layers.tensor import assign, cast
from fluidjax.to_static.checks import ask_noted
from fluidjax.to_static.sequences import VariableList, grown
from fluidjax.to_static.state import State
from fluidjax.to_static.trial import trial
from fluidjax.to_static.values import (
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
    refilled,
    remade,
    same_form,
    to_variable,
    truth,
)


def branch(test: Variable, body: Callable[[], Any], otherwise: Callable[[], Any], state: State) -> None:
    """Write both branches, and set the names to the results of the branch that runs."""
    found = truth(test)
    _grow_lists(found, body, otherwise, state)
    before = state.read()
    branches = _Branches(state)
    one = branches.write(found, body, before)
    two = branches.write(logical_not(found), otherwise, before)
    merge = _Merge(cast(found, "int32"), branches.origin)
    state.write([merge.value(name, a, b) for name, a, b in zip(state.names, one, two, strict=True)])
    ask_noted()


def choose(test: Variable, body: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
    """``body() if test else otherwise()``."""
    value: list[Any] = [Unset("the conditional expression")]

    def store(given: Any) -> None:
        value[:] = given

    name = "the value of the conditional expression"
    state = State(lambda: tuple(value), store, (name,), (name,))
    branch(test, lambda: store([body()]), lambda: store([otherwise()]), state)
    return value[0]


def _grow_lists(test: Variable, body: Callable[[], Any], otherwise: Callable[[], Any], state: State) -> None:
    """Convert lists that the branches leave with different lengths to arrays of the program."""
    before = state.read()
    lists = [i for i, value in enumerate(before) if isinstance(value, list)]
    if not lists:
        return
    with trial(block=False):
        one = _Branches(state).write(test, body, before)
        two = _Branches(state).write(logical_not(test), otherwise, before)
    now = list(before)
    for i in lists:
        if any(isinstance(v, VariableList) for v in (one[i], two[i])) or _lengths_differ(one[i], two[i]):
            now[i] = grown(state.names[i], now[i], one[i], two[i])
    state.write(now)


def _lengths_differ(one: Any, two: Any) -> bool:
    return isinstance(one, list) and isinstance(two, list) and len(one) != len(two)


class _Branches:
    def __init__(self, state: State):
        self.state = state
        self.origin: dict[int, Any] = {}  # copies of containers, and their originals

    def write(self, test: Variable, part: Callable[[], Any], before: tuple[Any, ...]) -> list[Any]:
        """Write one branch; returns the values it leaves, as seen by the surrounding block."""
        conditional = ConditionalBlock([test], is_scalar_condition=True)
        with conditional.block():
            try:
                self.state.write([copied(value, self.origin) for value in before])
                part()
                after = self.state.read()
            finally:
                self.state.write(before)
            pairs = zip(self.state.names, before, after, strict=True)
            # Lists are changed in place and may have other names, so they count as read.
            left = [self._outside(a) if self.state.needed(n) or is_container(b) else b for n, b, a in pairs]
        return left

    def _outside(self, value: Any) -> Any:
        """The value, with everything the block computed assigned to variables of the surrounding block."""
        if is_container(value):
            items = [self._outside(item) for item in items_of(value)]
            return refilled(value, value, items) if id(value) in self.origin else remade(value, items)
        block = default_main_program().current_block()
        if not is_variable(value) or not block.has_var(value.name):
            return value
        parent = block.program.block(block.parent_idx)
        outside = parent.create_var(dtype=value.dtype, shape=value.shape, type=value.type)
        outside.stop_gradient = value.stop_gradient
        assign(value, outside)
        if isinstance(value, Optional):
            return Optional.over(outside, self._outside(value.present))
        return as_number(outside) if isinstance(value, Number) else outside


class _Merge:
    """Merges the values of two branches."""

    def __init__(self, mask: Variable, origin: dict[int, Any]):
        self.mask, self.origin = mask, origin

    def value(self, name: str, one: Any, two: Any) -> Any:
        """The value of a name after the branches."""
        if isinstance(one, Unset) and isinstance(two, Unset):
            return one
        if isinstance(one, Unset) or isinstance(two, Unset):
            return self._half(name, one, two)
        if type(one) is dict and type(two) is dict:
            one, two = _with_keys(name, one, two), _with_keys(name, two, one)
        if same_form(one, two):
            pairs = enumerate(zip(items_of(one), items_of(two), strict=True))
            items = [self.value(f"{name}[{i}]", a, b) for i, (a, b) in pairs]
            first, second = self._original(one), self._original(two)
            return refilled(first, one, items) if first is not None and first is second else remade(one, items)
        if not is_variable(one) and equal(one, two):
            return one
        if one is two:
            return one
        if may_be_none(one, two):
            return self._optional(name, one, two)
        if can_be_variable(one) and can_be_variable(two):
            return self._select(name, one, two)
        return Unset(name, _differ(name, one, two))

    def _optional(self, name: str, one: Any, two: Any) -> Any:
        """A name that one branch may leave None."""
        nothing = absent(to_variable(two if one is None else one))
        value = self._select(name, *(nothing if v is None else v for v in (one, two)))
        if isinstance(value, Unset):
            return value
        return Optional.over(value, select_input([presence(two), presence(one)], self.mask))

    def _original(self, value: Any) -> Any:
        found = self.origin.get(id(value))
        return found[1] if found is not None and found[0] is value else None

    def _half(self, name: str, one: Any, two: Any) -> Any:
        """A name that only one branch assigned: the other branch supplies a placeholder."""
        given = two if isinstance(one, Unset) else one
        for value in (one, two):
            if Unset.explained(value):
                return value
        if is_container(given):
            items = [self._half(f"{name}[{i}]", one, item) for i, item in enumerate(items_of(given))]
            if isinstance(two, Unset):
                items = [self._half(f"{name}[{i}]", item, two) for i, item in enumerate(items_of(given))]
            return remade(given, items)
        if not can_be_variable(given):
            return Unset(name, _missing(name, given))
        given = to_variable(given)
        nothing = absent(given)
        return self._select(
            name, *((nothing, given) if given is not one and isinstance(one, Unset) else (given, nothing))
        )

    def _select(self, name: str, one: Any, two: Any) -> Any:
        numbers = not is_variable(one) and not is_variable(two)
        one, two = _alike(one, two), _alike(two, one)
        if one.dtype != two.dtype:
            one, two = _of_one_type(one, two)
        if one.dtype != two.dtype:
            return Unset(name, _differ(name, one, two))
        out = select_input([two, one], self.mask)
        out.stop_gradient = one.stop_gradient and two.stop_gradient
        weak = numbers or (isinstance(one, Number) and isinstance(two, Number))
        return as_number(out) if weak else out


def _with_keys(name: str, one: dict[Any, Any], two: dict[Any, Any]) -> dict[Any, Any]:
    """`one`, plus the keys that only `two` has, without values."""
    missing = [key for key in two if key not in one]
    one.update((key, Unset(f"{name}[{key!r}]")) for key in missing)
    if list(one) != list(two) and set(one) == set(two) and not missing:
        ordered = [(key, one[key]) for key in two]
        one.clear()
        one.update(ordered)
    return one


def _alike(value: Any, other: Any) -> Variable:
    """A value as a variable; a number takes the type and shape of the variable it is paired with."""
    number = plain_number(value)
    if is_variable(other) and isinstance(number, (bool, int, float)) and not isinstance(other, Number):
        return like(other, number)
    return to_variable(value)


def _of_one_type(one: Variable, two: Variable) -> tuple[Variable, Variable]:
    if isinstance(one, Number) and isinstance(two, Number):
        return cast(one, "float64"), cast(two, "float64")
    if isinstance(one, Number):
        return cast(one, two.dtype), two
    if isinstance(two, Number):
        return one, cast(two, one.dtype)
    return one, two


def _described(value: Any) -> str:
    if is_variable(value):
        return f"a variable of {value.dtype.name} and shape {list(value.shape)}"
    return f"{value!r:.60} of type {type(value).__name__}"


def _differ(name: str, one: Any, two: Any) -> str:
    return explain(
        f"{name} is used after an if on a variable whose branches leave values of different kinds in it",
        "variables of one type, numbers, or the same Python value in both branches",
        f"{_described(one)}, and {_described(two)}",
        "assign values of one kind in both branches, or let a Python value decide",
    )


def _missing(name: str, given: Any) -> str:
    return explain(
        f"{name} is used after an if on a variable of which one branch only assigns it",
        "a variable or a number, or an assignment in both branches",
        _described(given),
        f"assign {name} before the if",
    )
