"""Python's built-in functions in converted code: applied to variables, they create ops."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

from fluidjax import layers
from fluidjax.layers.control_flow import Print
from fluidjax.layers.tensor import cast
from fluidjax.to_static.checks import require
from fluidjax.to_static.sequences import Counter, Range, Staged, Together, VariableList, dimension, staged_items
from fluidjax.to_static.trial import on_trial
from fluidjax.to_static.values import as_number, is_variable, truth


def length(value: Any) -> Any:
    """``len``."""
    if is_variable(value):
        items = staged_items(value)
        return items.size() if isinstance(items, Staged) else dimension(value, 0)
    return value.size() if isinstance(value, Staged) else builtins.len(value)


def print_(*values: Any, **kwargs: Any) -> None:
    """``print``: variables are printed during the run, everything else during construction."""
    plain = [value for value in values if not is_variable(value)]
    if builtins.len(plain) == builtins.len(values):
        if not on_trial():
            print(*values, **kwargs)
        return
    message = " ".join(map(str, plain))
    for value in values:
        if is_variable(value):
            Print(value, message=message or None)


def integer(*args: Any, **kwargs: Any) -> Any:
    """``int``."""
    return _cast("int64", args[0]) if args and is_variable(args[0]) else int(*args, **kwargs)


def floating(*args: Any) -> Any:
    """``float``."""
    return _cast("float64", args[0]) if args and is_variable(args[0]) else float(*args)


def _cast(dtype: str, value: Any) -> Any:
    return as_number(cast(value, dtype))


def boolean(*args: Any) -> Any:
    """``bool``."""
    return truth(args[0]) if args and is_variable(args[0]) else bool(*args)


def range_(*args: Any) -> Any:
    """``range``."""
    if not any(is_variable(a) for a in args):
        return range(*args)
    return Range(0, *args) if builtins.len(args) == 1 else Range(*args)


def enumerate_(items: Any, start: Any = 0) -> Any:
    """``enumerate``."""
    items = staged_items(items)
    if isinstance(items, Staged) and is_variable(items.size()):
        return Together([Counter(start), items])
    return enumerate(_python(items), start)


def zip_(*sequences: Any, **kwargs: Any) -> Any:
    """``zip``."""
    parts = [staged_items(s) for s in sequences]
    if any(isinstance(p, Staged) and is_variable(p.size()) for p in parts):
        return Together(parts)
    return zip(*map(_python, parts), **kwargs)  # noqa: B905  (the caller says how strict)


def _python(items: Any) -> Any:
    return [items.item(i) for i in range(items.size())] if isinstance(items, Staged) else items


def concat(input: Any, *args: Any, **kwargs: Any) -> Any:
    """``layers.concat``."""
    return _joined(input, layers.concat, False, *args, **kwargs)


def stack(x: Any, *args: Any, **kwargs: Any) -> Any:
    """``layers.stack``."""
    return _joined(x, layers.stack, True, *args, **kwargs)


def _joined(given: Any, join: Callable[..., Any], stacked: bool, axis: int = 0, name: str | None = None) -> Any:
    if isinstance(given, VariableList):
        return layers.tensor_array_to_tensor(given.array, axis=axis, use_stack=stacked)[0]
    return join(given, axis=axis, name=name) if join is layers.concat else join(given, axis=axis)


def assert_variable(test: Any, message: Any) -> None:
    """``assert`` of a variable: the run stops with AssertionError if it does not hold."""
    require(truth(test), AssertionError(*([] if message is None else [message])))


REPLACED: dict[Any, Callable[..., Any]] = {
    len: length,
    print: print_,
    int: integer,
    float: floating,
    bool: boolean,
    range: range_,
    enumerate: enumerate_,
    zip: zip_,
    layers.concat: concat,
    layers.stack: stack,
}
