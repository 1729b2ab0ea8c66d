"""Primitives that combine elements: reductions, cumulative results, matrix products, and sorting."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from fluidjax.eager.first import borrowed
from fluidjax.eager.first.notation import Equation, Function, Make

_WINDOW = 32  # numbers of a sum, by each dimension, that XLA adds up first
_LARGE = 4096  # numbers that XLA adds up by its library
_UNROLLED = 2, 4, 8  # sizes of a dimension that it adds up side by side, if it is one of several


def _lowest(dtype: np.dtype[Any]) -> Any:
    return dtype.type(-np.inf) if dtype.kind == "f" else False if dtype.kind == "b" else np.iinfo(dtype).min


def _highest(dtype: np.dtype[Any]) -> Any:
    return dtype.type(np.inf) if dtype.kind == "f" else True if dtype.kind == "b" else np.iinfo(dtype).max


def _reduction(function: Any, first: Any) -> Make:
    """``first``: the initial value, for an element type."""

    def make(eqn: Equation) -> Function | None:
        axes, dtype = tuple(eqn.params["axes"]), eqn.dtype
        if dtype == np.bool_ and function in (np.add, np.multiply):
            return None
        initial = first(dtype)
        return lambda x: function.reduce(x, axis=axes, dtype=dtype, initial=initial)

    return make


def _rounding(name: str, function: Any, first: Any) -> Make:
    """A reduction whose result depends on the order, which is XLA's: one after the other, and 32 at a time if there
    are more.
    """
    exact = _reduction(function, first)

    def make(eqn: Equation) -> Function | None:
        axes, (shape, dtype) = tuple(eqn.params["axes"]), eqn.ins[0]
        if dtype.kind != "f":
            return exact(eqn)
        long, initial = [d for d in axes if shape[d] > _WINDOW], first(dtype)
        unrolled = len(axes) > 1 and any(shape[d] in _UNROLLED for d in axes)
        if int(np.prod(shape)) >= _LARGE or len(long) > 1 or unrolled:
            return borrowed.called(name, eqn)
        if not long:
            return lambda x: _in_order(function, x, axes, initial)
        return lambda x: _in_windows(function, x, axes, long[0], initial)

    return make


def is_short(eqn: Equation) -> bool:
    """Whether a reduction adds up one number after the other."""
    shape = eqn.ins[0].shape
    return int(np.prod(shape)) < _LARGE and all(shape[d] <= _WINDOW for d in eqn.params["axes"])


def _in_windows(function: Any, x: Any, axes: tuple[int, ...], long: int, initial: Any) -> Any:
    """A reduction of windows along the long dimension, and of what results: in windows again while it is long."""
    count = -(-x.shape[long] // _WINDOW)
    missing = count * _WINDOW - x.shape[long]
    around = [(missing // 2, missing - missing // 2) if d == long else (0, 0) for d in range(x.ndim)]
    padded = np.pad(x, around, constant_values=initial)
    windows = padded.reshape(*x.shape[:long], count, _WINDOW, *x.shape[long + 1 :])
    inner = [d + (d >= long) for d in axes]
    parts = _in_order(function, windows, inner, initial)
    rest = long - sum([d < long for d in axes])
    if count > _WINDOW:
        return _in_windows(function, parts, (rest,), rest, initial)
    return _in_order(function, parts, [rest], initial)


def _in_order(function: Any, x: Any, axes: Sequence[int], initial: Any) -> Any:
    """A reduction from the first number to the last."""
    kept = [d for d in range(x.ndim) if d not in axes]
    rows = x.transpose(*sorted(axes), *kept)
    shape = rows.shape[len(axes) :]
    # NumPy adds what lies side by side in pairs.
    rows = np.ascontiguousarray(rows).reshape(int(np.prod(rows.shape[: len(axes)])), int(np.prod(shape)))
    if rows.shape[1] == 1 and rows.shape[0]:
        return function(initial, function.accumulate(rows, 0)[-1]).reshape(shape)
    return function.reduce(rows, axis=0, initial=initial).reshape(shape)


def _arg(function: Any) -> Make:
    def make(eqn: Equation) -> Function | None:
        (axis,), dtype = eqn.params["axes"], np.dtype(eqn.params["index_dtype"])
        return lambda x: function(x, axis).astype(dtype)

    return make


def _running(function: Any) -> Make:
    def make(eqn: Equation) -> Function | None:
        axis, dtype, shape = eqn.params["axis"], eqn.dtype, eqn.shape
        if dtype == np.bool_:
            return None
        if not eqn.params["reverse"]:
            return lambda x: function.accumulate(x, axis, dtype)
        back = tuple([slice(None, None, -1 if k == axis else 1) for k in range(len(shape))])
        return lambda x: function.accumulate(x[back], axis, dtype)[back]

    return make


def _sort(eqn: Equation) -> Function:
    axis, count = eqn.params["dimension"], eqn.params["num_keys"]

    def sort(*arrays: Any) -> Any:
        one = count == 1
        order = np.argsort(arrays[0], axis, kind="stable") if one else np.lexsort(arrays[:count][::-1], axis)
        return [np.take_along_axis(array, order, axis) for array in arrays]

    return sort


def _top_k(eqn: Equation) -> Function:
    k, rank = eqn.params["k"], len(eqn.shape)
    axis = eqn.params.get("axis", rank - 1) % rank
    back = tuple([slice(None, None, -1 if d == axis else 1) for d in range(rank)])
    first = tuple([slice(k) if d == axis else slice(None) for d in range(rank)])
    last, dtype = eqn.ins[0].shape[axis] - 1, eqn.outs[1].dtype

    def top_k(x: Any) -> Any:
        # The largest first, earlier ones first among equals: a reversed sort of reversed input.
        order = last - np.argsort(x[back], axis, kind="stable")[back][first]
        return np.take_along_axis(x, order, axis), order.astype(dtype)

    return top_k


PRIMITIVES: dict[str, Make] = {
    "argmax": _arg(np.argmax),
    "argmin": _arg(np.argmin),
    "cummax": _running(np.maximum),
    "cummin": _running(np.minimum),
    "cumprod": _running(np.multiply),
    "cumsum": _running(np.add),
    "dot_general": partial(borrowed.called, "dot_general"),
    "reduce_and": _reduction(np.bitwise_and, lambda dtype: dtype.type(True) if dtype.kind == "b" else ~dtype.type(0)),
    "reduce_max": _reduction(np.maximum, _lowest),
    "reduce_min": _reduction(np.minimum, _highest),
    "reduce_or": _reduction(np.bitwise_or, lambda dtype: dtype.type(0)),
    "reduce_prod": _rounding("reduce_prod", np.multiply, lambda dtype: dtype.type(1)),
    "reduce_sum": _rounding("reduce_sum", np.add, lambda dtype: dtype.type(0)),
    "sort": _sort,
    "top_k": _top_k,
}
