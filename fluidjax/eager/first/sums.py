"""Primitives that combine elements: reductions, cumulative results, matrix products, and sorting."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluidjax.eager.first.notation import Equation, Function, Make


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


def _dot_general(eqn: Equation) -> Function | None:
    ((left, right), (left_batch, right_batch)), out = eqn.params["dimension_numbers"], eqn.shape
    a, b = eqn.ins
    if a.dtype == np.bool_ or b.dtype == np.bool_:
        return None
    free_a = [d for d in range(len(a.shape)) if d not in (*left, *left_batch)]
    free_b = [d for d in range(len(b.shape)) if d not in (*right, *right_batch)]
    order_a, order_b = (*left_batch, *free_a, *left), (*right_batch, *right, *free_b)
    batch = [a.shape[d] for d in left_batch]
    inner = int(np.prod([a.shape[d] for d in left]))
    shape_a = (*batch, int(np.prod([a.shape[d] for d in free_a])), inner)
    shape_b = (*batch, inner, int(np.prod([b.shape[d] for d in free_b])))
    dtype = eqn.dtype

    def dot(a: Any, b: Any) -> Any:
        a, b = a.transpose(order_a).reshape(shape_a), b.transpose(order_b).reshape(shape_b)
        return np.matmul(a.astype(dtype, copy=False), b.astype(dtype, copy=False)).reshape(out)

    return dot


def _sort(eqn: Equation) -> Function | None:
    axis = eqn.params["dimension"]
    if eqn.params["num_keys"] != 1:
        return None

    def sort(*arrays: Any) -> Any:
        order = np.argsort(arrays[0], axis, kind="stable")
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
    "dot_general": _dot_general,
    "reduce_and": _reduction(np.bitwise_and, lambda dtype: dtype.type(True) if dtype.kind == "b" else ~dtype.type(0)),
    "reduce_max": _reduction(np.maximum, _lowest),
    "reduce_min": _reduction(np.minimum, _highest),
    "reduce_or": _reduction(np.bitwise_or, lambda dtype: dtype.type(0)),
    "reduce_prod": _reduction(np.multiply, lambda dtype: dtype.type(1)),
    "reduce_sum": _reduction(np.add, lambda dtype: dtype.type(0)),
    "sort": _sort,
    "top_k": _top_k,
}
