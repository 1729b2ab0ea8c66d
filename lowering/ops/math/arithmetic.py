"""Sums, scaling, clipping, cumulative sums, tests for finite values."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lowering.dtypes import LOD_TENSOR, is_float
from lowering.engine.pinned import pinned
from lowering.engine.shapes.infer_rules import by_rule, like
from lowering.errors import NeedsExact, SlotError
from lowering.loops.arrays import alike, cleared
from lowering.ops import fitting
from lowering.ops.math.elementwise import aligned, unbroadcast
from lowering.ops.math.rounding import product
from lowering.ops.shared import off_rows, outputs_like
from lowering.ops.sparse import distinct_rows, on_values
from lowering.program import OpSpec, VarInfo
from lowering.registry import MASKED, WISE, Value, Wise, op
from lowering.values import LoDArray, Meta, SelectedRows, TensorArray


def _number(value: float, dtype: Any) -> Any:
    """An attribute in the kernel's data type: integers truncate it, and wrap as their arithmetic does."""
    return np.asarray(int(value)).astype(dtype) if jnp.issubdtype(dtype, jnp.integer) else value


def in_type(number: Any, dtype: Any) -> Any:
    """The same for an array of numbers; XLA's own conversion of floats to integers would stop at the bounds."""
    whole = jnp.issubdtype(dtype, jnp.integer) and not jnp.issubdtype(number.dtype, jnp.integer)
    return (number.astype(jnp.int64) if whole else number).astype(dtype)


def _scaled(shapes, attr):
    return None if "ScaleTensor" in shapes else {"Out": shapes["X"]}


@op(rows=Wise("x"), diff="x", fold=True, linear=True, infer=by_rule(_scaled))
def scale(x: Value, scale_tensor=None, *, scale: float = 1.0, bias: float = 0.0, bias_after_scale: bool = True):
    """Out = scale * X + bias, or scale * (X + bias); ScaleTensor [1] overrides ``scale``. X may be SelectedRows."""
    factor = _number(scale, x.dtype) if scale_tensor is None else in_type(scale_tensor.reshape(()), x.dtype)
    shift = _number(bias, x.dtype)

    same = scale_tensor is None and factor == 1
    factor = jnp.asarray(factor, x.dtype)  # a Python number would widen a known bfloat16

    def apply(data):
        if bias_after_scale or not shift:
            data = data if same else product(data, factor)
            return data + jnp.asarray(shift, x.dtype) if shift else data
        return (data + jnp.asarray(shift, x.dtype)) * factor

    return on_values(x, apply)


@scale.grad_maker
def _(g):
    attrs = dict(g.attrs, bias=0.0, bias_after_scale=True)
    inputs = {"X": g.output_grad("Out"), "ScaleTensor": g.input("ScaleTensor")}
    return [OpSpec("scale", inputs, {"Out": g.input_grad("X")}, attrs)]


@op("sum", vendor="use_mkldnn", rows=MASKED, fold=True, absent="x", linear=True, infer=like("X"))
def sum_(x: list[Value]):
    """Out = the sum of all X: dense tensors, SelectedRows (each row once), both (dense), or tensor arrays."""
    given = [v for v in x if v is not None]
    if not given:
        raise SlotError("op sum got no value in X; expected at least one initialized variable")
    if any(isinstance(v, TensorArray) for v in given):
        return _sum_arrays(given)
    if all(isinstance(v, SelectedRows) for v in given):
        return distinct_rows(given)
    return _sum_dense(
        [v for v in given if not isinstance(v, SelectedRows)], [v for v in given if isinstance(v, SelectedRows)]
    )


@sum_.fits
def _(x):
    """Tensors of one shape; one that is declared empty, or without a shape, adds nothing that could be compared."""
    fitting.alike("all X", *(var for var in x if var.type == LOD_TENSOR and var.shape and 0 not in var.shape))


def _sum_dense(dense: list[Any], sparse: list[SelectedRows]) -> Any:
    arrays = [v.data if isinstance(v, LoDArray) else v for v in dense]
    padded = [isinstance(v, LoDArray) and v.padded for v in dense]
    if any(padded) and not all(padded):
        raise NeedsExact("op sum mixes padded and exact rows")
    arrays = [a for a in arrays if a.size] or arrays[:1]
    if len({a.shape for a in arrays}) > 1:
        raise SlotError(f"op sum adds tensors of one shape, received {[tuple(a.shape) for a in arrays]}")
    total = arrays[0]
    for array in arrays[1:]:
        total = total + array
    for part in sparse:
        total = jnp.asarray(total).at[part.rows].add(part.values, mode="drop")
    return dense[0].with_data(total) if isinstance(dense[0], LoDArray) else total


def _sum_arrays(arrays: list[TensorArray]) -> TensorArray:
    """Elements are added position by position; an array may lack the last ones. What a gradient took is zero."""
    arrays = [cleared(a) for a in arrays]
    if any(a.stacked for a in arrays):
        return _sum_stacked(arrays)
    lists = [a.items or () for a in arrays]
    longest = max(len(items) for items in lists)
    total = []
    for i in range(longest):
        present = [items[i] for items in lists if i < len(items) and items[i] is not None]
        total.append(sum_.fn(present) if present else None)
    return TensorArray(tuple(total))


def _sum_stacked(arrays: list[TensorArray]) -> TensorArray:
    written = alike([a for a in arrays if a.stacked or a.items])
    buffer = jax.tree_util.tree_map(lambda *leaves: _total(leaves), *[a.buffer for a in written])
    length = written[0].length
    for a in written[1:]:
        length = jnp.maximum(length, a.length)
    return TensorArray(None, buffer, length)


def _total(leaves):
    """Numbers add; offsets and counts (integers) are the same in all arrays."""
    if not jnp.issubdtype(leaves[0].dtype, jnp.floating):
        return leaves[0]
    total = leaves[0]
    for leaf in leaves[1:]:
        total = total + leaf
    return total


@sum_.grad_maker
def _(g):
    return [OpSpec("scale", {"X": g.output_grad("Out")}, {"Out": [name]}, {"scale": 1.0}) for name in g.input_grad("X")]


@op(rows=WISE, linear=True)
def minus(x, y):
    """Out = X - Y."""
    return x - y


@minus.grad_maker
def _(g):
    return [
        OpSpec("scale", {"X": g.output_grad("Out")}, {"Out": names}, {"scale": factor})
        for names, factor in ((g.input_grad("X"), 1.0), (g.input_grad("Y"), -1.0))
        if names
    ]


@op(rows=WISE, fold=True, inplace={"Out": "x"}, linear=True)
def increment(x, *, step: float = 1.0):
    """Out[1] = X + step. Its gradient op is ``increment`` by -step on X itself, which rewinds a loop counter."""
    if x.size != 1:
        raise ValueError(f"increment counts one number; expected X of one element, received shape {list(x.shape)}")
    return x + jnp.asarray(step, x.dtype)


@increment.grad_maker
def _(g):
    attrs = dict(g.attrs, step=-float(g.attrs.get("step", 1.0)))
    back = OpSpec("increment", {"X": g.output("Out")}, {"Out": g.input("X")}, attrs)
    if g.input("X") == g.output("Out"):
        return [back]  # the gradient stays what it is, under its name
    wanted = g.input_grad("X")
    return [back, *([OpSpec("assign", {"X": g.output_grad("Out")}, {"Out": wanted})] if wanted else [])]


def _bound(attr: float, tensor: Any, dtype: Any) -> Any:
    if tensor is not None:
        return tensor.reshape(()).astype(dtype)
    return attr if is_float(dtype) else int(attr)


@op(rows=Wise("x"), diff="x")
def clip(x: Value, min=None, max=None, *, min_: float, max_: float):
    """Out = X clipped to [min, max]; the Min and Max tensors override the attributes. X may be SelectedRows."""
    low, high = _bound(min_, min, x.dtype), _bound(max_, max, x.dtype)
    if isinstance(x, SelectedRows):
        x = distinct_rows([x])
    return on_values(x, lambda data: jnp.clip(data, low, high))


@clip.grad
def _(x, d_out, min=None, max=None, *, min_, max_):
    low, high = _bound(min_, min, x.dtype), _bound(max_, max, x.dtype)
    return jnp.where((x > low) & (x < high), d_out, 0)


def _off_summed(attrs, ndim):
    return None if attrs["flatten"] else off_rows(attrs, ndim)


@op(rows=_off_summed, newer="flatten")
def cumsum(x, *, axis: int = -1, exclusive: bool = False, reverse: bool = False, flatten: bool = False):
    """Out = cumulative sums of X along ``axis``; exclusive excludes the element itself, reverse starts at the end."""
    return _cumsum(x.reshape(-1), 0, exclusive, reverse) if flatten else _cumsum(x, axis, exclusive, reverse)


def _cumsum(x, axis, exclusive, reverse):
    fitting.axis_of("axis", axis, x.ndim)
    out = jax.lax.cumsum(x, axis=axis % x.ndim, reverse=reverse)
    return out - x if exclusive else out


@cumsum.grad
def _(d_out, x: Meta = None, *, axis, exclusive, reverse, flatten):
    """The gradient op of Paddle 2; Fluid uses a reversed cumsum."""
    if flatten and x is not None:
        return _cumsum(d_out.reshape(-1), 0, exclusive, not reverse).reshape(x.shape)
    return _cumsum(d_out, axis, exclusive, not reverse)


@cumsum.grad_maker
def _(g):
    attrs = dict(g.attrs, reverse=not g.attrs.get("reverse", False))
    return [OpSpec("cumsum", {"X": g.output_grad("Out")}, {"Out": g.input_grad("X")}, attrs)]


def _infer_verdict(op, var_of):
    """One element; the declared data type stays, as in Fluid."""
    return outputs_like(op, "Out", VarInfo((1,)))


@op(lod=None, diff="", infer=_infer_verdict, rows=MASKED)
def isfinite(x: Value):
    """Out[1] = whether every element of X is finite."""
    return jnp.all(jnp.isfinite(_numbers(x))).reshape(1)


@op(lod=None, diff="", infer=_infer_verdict, rows=MASKED)
def isinf(x: Value):
    """Out[1] = whether any element of X is infinite."""
    return jnp.any(jnp.isinf(_numbers(x))).reshape(1)


@op(lod=None, diff="", infer=_infer_verdict, rows=MASKED)
def isnan(x: Value):
    """Out[1] = whether any element of X is NaN."""
    return jnp.any(jnp.isnan(_numbers(x))).reshape(1)


def _numbers(x: Any) -> Any:
    """The stored numbers; padding rows are copies of valid ones, so they never change the verdict."""
    if isinstance(x, SelectedRows):
        return x.values
    return x.data if isinstance(x, LoDArray) else x


@op(lod=None, diff="")
def allclose(input, other, *, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False):
    """Out[1] = whether |Input - Other| <= atol + rtol * |Other| for all elements."""
    return jnp.allclose(input, other, rtol=float(rtol), atol=float(atol), equal_nan=equal_nan).reshape(1)


@op(lod=None)
def dist(x, y, *, p: float = 2.0):
    """Out[1] = the p-norm of X - Y (broadcast); p 0 counts differences, +-inf take the extremum."""
    size = jnp.abs(jnp.subtract(*aligned(x, y, -1)))
    if p == 0:
        return jnp.sum(size != 0).astype(x.dtype).reshape(1)
    if np.isinf(p):
        return (jnp.max if p > 0 else jnp.min)(size).reshape(1)
    return (jnp.sum(size**p) ** (1 / p)).reshape(1)


@dist.grad
def _(x, y, out, d_out, *, p):
    a, b = aligned(x, y, -1)
    difference = a - b
    size = pinned(jnp.abs(difference)) if np.isinf(p) else jnp.abs(difference)
    if p == 0:
        slope = jnp.zeros_like(size)
    elif np.isinf(p):
        slope = (size == (jnp.max if p > 0 else jnp.min)(size)).astype(size.dtype)
    else:
        slope = jnp.where(out > 0, (size / jnp.where(out > 0, out, 1)) ** (p - 1), 0)
    grad = slope * jnp.sign(difference) * d_out.reshape(())
    return unbroadcast(grad, a.shape, x.shape), unbroadcast(-grad, b.shape, y.shape)
