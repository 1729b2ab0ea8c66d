"""``paddle.compat``: helpers from the time when scripts supported both Python 2 and 3."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

__all__ = ["long_type", "to_text", "to_bytes", "round", "floor_division", "get_exception_message"]

int_type = int
long_type = int


def _each(obj: Any, convert: Callable[[Any], Any], inplace: bool) -> Any:
    """Apply to a value, or to the items of a list, set or dict; with ``inplace``, modify the container itself."""
    if isinstance(obj, list):
        new: Any = [_each(item, convert, inplace) for item in obj]
    elif isinstance(obj, set):
        new = {_each(item, convert, inplace) for item in obj}
    elif isinstance(obj, dict):
        new = {_each(k, convert, inplace): _each(v, convert, inplace) for k, v in obj.items()}
    else:
        return convert(obj)
    if not inplace:
        return new
    if isinstance(obj, list):
        obj[:] = new
    else:
        obj.clear()
        obj.update(new)
    return obj


def to_text(obj: Any, encoding: str = "utf-8", inplace: bool = False) -> Any:
    """Decode bytes to str, including the items of a list, set or dict. Other values are unchanged."""
    return _each(obj, lambda value: value.decode(encoding) if isinstance(value, bytes) else value, inplace)


def to_bytes(obj: Any, encoding: str = "utf-8", inplace: bool = False) -> Any:
    """Encode str to bytes, including the items of a list, set or dict. Other values are unchanged."""
    return _each(obj, lambda value: value.encode(encoding) if isinstance(value, str) else value, inplace)


def round(x: float, d: int = 0) -> float:
    """Round half away from zero, to ``d`` decimals."""
    scale = 10**d
    return math.copysign(math.floor(abs(x) * scale + 0.5) / scale, x)


def floor_division(x: float, y: float) -> float:
    """``x // y``."""
    return x // y


def get_exception_message(exc: BaseException) -> str:
    """The text of an exception."""
    if exc is None:
        raise AssertionError("get_exception_message expected an exception, received None; pass the exception")
    return str(exc)
