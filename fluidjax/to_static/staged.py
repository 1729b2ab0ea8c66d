"""The functions that converted code calls. Each inspects its operands: Python's values are handled as Python does."""

from __future__ import annotations

import builtins
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any

from fluidjax.layers.nn import logical_and, logical_not, logical_or
from fluidjax.to_static import functions
from fluidjax.to_static.branches import branch, choose
from fluidjax.to_static.convert import called
from fluidjax.to_static.loops import loop
from fluidjax.to_static.sequences import Staged, dimension, picked, staged_items
from fluidjax.to_static.state import State
from fluidjax.to_static.trial import trial
from fluidjax.to_static.values import Optional, Unset, is_container, is_variable, items_of, truth

_Values = tuple[Any, ...]
_Read = Callable[[], _Values]
_Write = Callable[[Sequence[Any]], None]
_Later = Callable[[], Any]


def if_(
    test: Any,
    body: _Later,
    otherwise: _Later,
    read: _Read,
    write: _Write,
    names: tuple[str, ...],
    live: tuple[str, ...],
) -> None:
    """``if test: body() else: otherwise()``."""
    if is_variable(test):
        branch(test, body, otherwise, State(read, write, names, live))
    elif test:
        body()
    else:
        otherwise()


def while_(
    test: _Later, body: _Later, read: _Read, write: _Write, names: tuple[str, ...], live: tuple[str, ...]
) -> None:
    """``while test(): body()``; once the test is a variable, the remaining iterations become a loop of the program."""
    while True:
        found = _asked(test)
        if found is None:
            return loop(test, body, State(read, write, names, live))
        if not found:
            return None
        body()


def _asked(test: _Later) -> bool | None:
    """The value of a test, None if known only at run time; the ops created to find out are discarded in that case."""
    with trial(block=False):
        found = test()
        if is_variable(found):
            return None
    return bool(found)


def for_(
    items: Any,
    body: Callable[[Any], Any],
    stop: _Later,
    read: _Read,
    write: _Write,
    names: tuple[str, ...],
    live: tuple[str, ...],
) -> None:
    """``for item in items: body(item)`` until ``stop()``."""
    state = State(read, write, names, live)
    items = staged_items(items)
    if isinstance(items, Staged) and is_variable(items.size()):
        return _counted(items, body, stop, state)
    rounds = State(read, write, names, names)  # the next iteration may read whatever this one assigns
    for item in items if not isinstance(items, Staged) else [items.item(i) for i in range(items.size())]:
        stopped = stop()
        if is_variable(stopped):
            branch(logical_not(truth(stopped)), _call_with(body, item), lambda: None, rounds)
        elif stopped:
            return None
        else:
            body(item)
    return None


def _call_with(body: Callable[[Any], Any], item: Any) -> _Later:
    return lambda: body(item)


def _counted(items: Staged, body: Callable[[Any], Any], stop: _Later, state: State) -> None:
    """A loop whose number of iterations is a variable."""
    count = items.size()
    index = [0]

    def read() -> _Values:
        return (*state.read(), index[0])

    def write(values: Sequence[Any]) -> None:
        state.write(values[:-1])
        index[0] = values[-1]

    def once() -> None:
        body(items.item(index[0]))
        index[0] = index[0] + 1

    counter = "the loop's counter"
    wider = State(read, write, (*state.names, counter), (*state.live, counter))
    loop(lambda: and_(lambda: not_(stop()), lambda: count > index[0]), once, wider)


# --- expressions ------------------------------------------------------------------------------------------------------


def and_(*values: _Later) -> Any:
    """``a and b and ...``."""
    found = values[0]()
    for value in values[1:]:
        if not is_variable(found):
            if not found:
                return found
            found = value()
            continue
        found = _both(logical_and, found, value(), True)
    return found


def or_(*values: _Later) -> Any:
    """``a or b or ...``."""
    found = values[0]()
    for value in values[1:]:
        if not is_variable(found):
            if found:
                return found
            found = value()
            continue
        found = _both(logical_or, found, value(), False)
    return found


def _both(join: Callable[[Any, Any], Any], one: Any, two: Any, neutral: bool) -> Any:
    if is_variable(two):
        return join(truth(one), truth(two))
    return truth(one) if bool(two) is neutral else not neutral


def not_(value: Any) -> Any:
    """``not value``."""
    return logical_not(truth(value)) if is_variable(value) else not value


def is_none(value: Any) -> Any:
    """``value is None``."""
    return logical_not(value.present) if isinstance(value, Optional) else value is None


def either(test: Any, one: _Later, two: _Later) -> Any:
    """``one if test else two``."""
    if is_variable(test):
        return choose(test, one, two)
    return one() if test else two()


_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "is": operator.is_,
    "is not": operator.is_not,
    "in": lambda a, b: a in b,
    "not in": lambda a, b: a not in b,
}


def chain(first: Any, *rest: Any) -> Any:
    """``a < b <= c``: the values in order, with an operator before each but the first."""
    found: Any = True
    for sign, value in zip(rest[::2], rest[1::2], strict=True):
        if not is_variable(found) and not found:
            return found
        second = value()
        found = and_(_constantly(found), _constantly(_COMPARE[sign](first, second)))
        first = second
    return found


def _constantly(value: Any) -> _Later:
    return lambda: value


def call(function: Any) -> Any:
    """The callable that replaces a function in a call."""
    try:
        replaced = functions.REPLACED.get(function)
    except TypeError:  # unhashable
        replaced = None
    return replaced or called(function, sys.modules[__name__])


def numpy(value: Any) -> Any:
    """``value.numpy()``; a variable of a program has no value yet and is returned itself."""
    return value if is_variable(value) else call(value.numpy)()


def shape(value: Any) -> Any:
    """``value.shape``, with variables for dimensions known only at run time."""
    if not is_variable(value) or all(n >= 0 for n in value.shape):
        return value.shape
    return [dimension(value, axis) for axis in range(len(value.shape))]


def item(value: Any, index: Any) -> Any:
    """``value[index]``; an index that is a variable also selects from Python sequences."""
    return picked(value, index) if isinstance(value, (list, tuple)) and is_variable(index) else value[index]


slice = builtins.slice


def listed(items: Any) -> Any:
    """What a comprehension iterates over."""
    items = staged_items(items)
    if isinstance(items, Staged) and not is_variable(items.size()):
        return [items.item(i) for i in range(items.size())]
    return items


# --- names ------------------------------------------------------------------------------------------------------------

unset = Unset


def load(read: _Later, symbol: str) -> Any:
    """The value of a symbol that may not exist."""
    try:
        return read()
    except (AttributeError, NameError):
        return Unset(symbol)


def store(owner: Any, name: str, value: Any) -> None:
    """``owner.name = value``; no value deletes the attribute."""
    if not isinstance(value, Unset):
        if getattr(owner, name, None) is not value:
            setattr(owner, name, value)
    elif name in getattr(owner, "__dict__", ()):
        delattr(owner, name)


def returned(value: Any) -> Any:
    """The return value of a function; it must be defined."""
    for part in items_of(value) if is_container(value) else [value]:
        if isinstance(part, Unset):
            part()  # raises
    return value


def assert_(test: Any, message: _Later) -> None:
    """``assert test, message()``."""
    if is_variable(test):
        functions.assert_variable(test, message())
    elif not test:
        given = message()
        raise AssertionError(*([] if given is None else [given]))
