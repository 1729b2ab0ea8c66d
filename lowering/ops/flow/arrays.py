"""Tensor arrays: writing, reading, length, joining."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lowering.dtypes import INT64, LOD_TENSOR_ARRAY
from lowering.engine.context import Context
from lowering.engine.gradients.grad_maker import GradMaker
from lowering.errors import NeedsConcrete, SlotError
from lowering.loops import arrays
from lowering.loops.carried import known_int, scalar, zero_gradient
from lowering.loops.multiplied import has_matrices
from lowering.loops.stacking import array_room
from lowering.program import EMPTY, OpSpec, OpView, VarInfo, forward_names
from lowering.registry import Value, op
from lowering.values import Axis, LoDArray, TensorArray, Wide, fill_padding


def shape_like(out: str, source: str, level: int | None = 0) -> Any:
    """Shape inference: every variable of slot ``out`` has the shape and dtype of the first one of ``source``.

    ``level`` is added to the LoD level; None leaves the level alone.
    """

    def infer(op: OpView, var_of: Any) -> dict[str, VarInfo]:
        names = [n for n in op.inputs.get(source) or () if n != EMPTY]
        var = var_of(names[0]) if names else None
        if var is None:
            return {}
        lod_level = None if level is None else max(0, var.lod_level + level)
        info = VarInfo(tuple(var.shape), var.dtype, lod_level)
        return {n: info for n in op.outputs.get(out) or () if n != EMPTY}

    return infer


def _one_int64(op: OpView, var_of: Any) -> dict[str, VarInfo]:
    return {n: VarInfo((1,), INT64) for n in op.outputs.get("Out") or ()}


def _array(value: Any, slot: str, ctx: Context) -> TensorArray:
    if not isinstance(value, TensorArray):
        raise SlotError(
            f"op {ctx.op.type} expects a tensor array in slot {slot} ({ctx.op.inputs.get(slot)}), received a"
            f" {type(value).__name__}; write it with array_write first"
        )
    return value


def _declared(ctx: Context) -> bool:
    """Whether the variable in slot X is a tensor array by its declaration."""
    var = ctx.runner.program.find_var(ctx.op.block_idx, ctx.op.inputs["X"][0])
    return var is not None and var.type == LOD_TENSOR_ARRAY


def forward_value(name: str, ctx: Context) -> Any:
    """What ``name`` is the gradient of, when the block still holds it."""
    return next((ctx.env[n] for n in forward_names(name) if n in ctx.env), None)


def forward_array(name: str, ctx: Context) -> TensorArray | None:
    """The array that gradient array ``name`` belongs to, when the block still holds it."""
    base = forward_value(name, ctx)
    return base if isinstance(base, TensorArray) else None


def gradient_array(name: str, i: Any, ctx: Context) -> TensorArray | None:
    """What gradient array ``name`` holds, in the structure of its forward array; None when nothing is known.

    An element that is known only at run time is found in a stacked array, which then stays one.
    """
    base, held = forward_array(name, ctx), ctx.env.get(name)
    if base is None or (held is None and not base.stacked):
        return held
    if known_int(i) is None and arrays.covers(held, base):
        return held
    return arrays.gradient_like(held, base, flags=name not in ctx.runner.arrays.unflagged)


@op(kind="block", infer=shape_like("Out", "X"), continues="Out")
def write_to_array(x: Value, i: Value, *, ctx):
    """Out[I] = X. In a backward pass, Out[I] += X, since gradients of several reads of an element accumulate."""
    name = ctx.op.outputs["Out"][0]
    if x is None or i is None:
        raise SlotError(f"op write_to_array (#{ctx.op.number}) lacks a value for {ctx.op.inputs}; compute it before")
    held = gradient_array(name, i, ctx) if ctx.is_backward else ctx.env.get(name)
    once = name in ctx.runner.arrays.once
    return arrays.put(held, i, x, array_room(ctx.runner, name), add=ctx.is_backward, once=once)


@write_to_array.grad_maker
def _(g: GradMaker):
    inputs = {"I": g.input("I"), "X": g.output_grad("Out"), "X_W": g.input("X")}
    return [OpSpec("read_from_array", inputs, {"Out": g.input_grad("X")}, g.attrs)]


def _rows_like(value: Any, written: Any) -> Any:
    """An element of a gradient array with the rows of the value that was written: an array pads what it stacks."""
    if not isinstance(value, LoDArray) or not hasattr(written, "shape"):
        return value
    data = value.data[: written.shape[0]]
    if data.shape != tuple(written.shape):
        return value
    return written.with_data(data) if isinstance(written, LoDArray) else data


def _written(name: str, i: Any, ctx: Context) -> Any:
    """Element i of the forward array: what X_W is a name for, where a loop has not saved that variable."""
    base = forward_array(name, ctx)
    return None if base is None else arrays.get(base, i)


@op(kind="block", slots={"x_w": "X_W"}, infer=shape_like("Out", "X"), changes="x")
def read_from_array(x: Value, i: Value, x_w: Value = None, *, ctx):
    """Out = X[I]. As the gradient of a write (X_W given), it takes X[I] and clears it; zeros if there is nothing."""
    name = ctx.op.inputs["X"][0]
    out = ctx.op.outputs["Out"][0]
    if ctx.is_backward:
        value, x = None, gradient_array(name, i, ctx)
        if x is not None:
            facts = ctx.runner.arrays
            value, ctx.env[name] = arrays.take(x, i, flag=name not in facts.unflagged, fixed=name in facts.fixed)
        written = _written(name, i, ctx) if x_w is None and value is None else x_w
        if written is not None:
            value = zero_gradient(written) if value is None else _rows_like(value, written)
    else:
        facts, array = ctx.runner.arrays, _array(x, "X", ctx)
        value = _element(array, i, name in facts.fixed or (out in facts.multiplied and has_matrices(array)))
    if value is not None:
        ctx.env[out] = value
    return None


def _element(array: TensorArray, i: Any, plain: bool) -> Any:
    plain = plain and array.stacked and known_int(i) is None
    return arrays.get_plain(array, scalar(i)) if plain else arrays.get(array, i)


@read_from_array.grad_maker
def _(g: GradMaker):
    inputs = {"I": g.input("I"), "X": g.output_grad("Out")}
    return [OpSpec("write_to_array", inputs, {"Out": g.input_grad("X")}, g.attrs)]


@op(kind="block", infer=_one_int64)
def lod_array_length(x: Value, *, ctx):
    """Out = [number of elements of X], int64; 0 if nothing has been written."""
    count = arrays.length(None if x is None and _declared(ctx) else _array(x, "X", ctx))
    if isinstance(count, int):
        return np.asarray([count], np.int64)
    ctx.runner.bounds[ctx.op.outputs["Out"][0]] = x.capacity
    return count.reshape(1).astype(jnp.int64)


def elements(array: TensorArray) -> list[Any]:
    """The elements of an array whose length is known."""
    if not array.stacked:
        return [v.data if isinstance(v, LoDArray) else v for v in array.items or ()]
    count = known_int(array.length)
    if count is None:
        raise NeedsConcrete("the length of a tensor array")
    buffer = array.buffer
    if isinstance(buffer, LoDArray):
        if buffer.padded:
            raise NeedsConcrete("the row counts of a tensor array's elements")
        buffer = buffer.data
    return [buffer[k] for k in range(count)]


def _joined_shape(op: OpView, var_of: Any) -> dict[str, VarInfo]:
    """The number of elements is unknown: a new dimension of unknown size, or one of the dimensions unknown."""
    var, axis = var_of(op.inputs["X"][0]), int(op.attrs.get("axis", 0))
    if var is None:
        return {}
    shape = list(var.shape)
    if op.attrs.get("use_stack", False):
        shape.insert(axis % (len(shape) + 1), -1)
    elif axis < len(shape):
        shape[axis] = -1
    return {n: VarInfo(tuple(shape), var.dtype) for n in op.outputs.get("Out") or ()}


def _counted(axis: int, items: list[Any], use_stack: bool) -> int:
    """``axis`` from the first dim of what ``items`` are joined to."""
    rank = max((v.ndim for v in items), default=0) + use_stack
    return axis % rank if rank else axis


@op(out="Out OutIndex", kind="block", infer=_joined_shape)
def tensor_array_to_tensor(x: Value, *, axis: int = 0, use_stack: bool = False, ctx):
    """Out = concat(X, axis), or stack(X, axis) with use_stack.

    OutIndex, int32: the size of each element along the axis, in both cases (1 for a new last axis).
    """
    items = elements(_array(x, "X", ctx))
    axis = _counted(axis, items, use_stack)
    sizes = [v.shape[axis] if axis < v.ndim else 1 for v in items]
    joined = jnp.stack(items, axis) if use_stack else jnp.concatenate(items, axis)
    return joined, np.asarray(sizes, np.int32)


@tensor_array_to_tensor.with_room
def _(x: Any, *, axis, use_stack, ctx):
    """What a loop wrote, with room for what it may write: as rows, or wide along another axis."""
    if not x.stacked or isinstance(x.buffer, LoDArray):
        raise NeedsConcrete("the length of a tensor array")
    rank = x.buffer.ndim if use_stack else x.buffer.ndim - 1
    axis = axis % rank if rank else 0
    if axis and ctx.op.block_idx:
        raise NeedsConcrete("the length of a tensor array")
    size = x.buffer.shape[1 + axis] if x.buffer.ndim > 1 + axis else 1
    count = jnp.asarray(x.length, np.int32).reshape(())
    sizes = LoDArray(jnp.full(x.capacity, size, np.int32), (), count)
    if axis:
        used = Axis(axis, x.capacity, ("elements", ctx.op.outputs["Out"][0]), 1 if use_stack else size)
        data = jnp.moveaxis(x.buffer, 0, axis)
        joined = data if use_stack else data.reshape(*data.shape[:axis], -1, *data.shape[axis + 2 :])
        return Wide(joined, (count,), (used,)), sizes
    data = x.buffer if use_stack else x.buffer.reshape(-1, *x.buffer.shape[2:])
    rows = count if use_stack else count * size
    return LoDArray(fill_padding(data, rows, backward=False), (), rows), sizes


@tensor_array_to_tensor.grad(wrt="x", slots={"d_out": "Out@GRAD"})
def _(x: Value, d_out: Value, *, axis, use_stack, ctx):
    name = ctx.op.outputs["X@GRAD"][0]
    items = elements(_array(x, "X", ctx))
    axis = _counted(axis, items, use_stack)
    data = d_out.data if isinstance(d_out, LoDArray) else d_out
    if use_stack:
        data = data.reshape((*items[0].shape[:axis], len(items), *items[0].shape[axis:]))
        parts = [jax.lax.index_in_dim(data, k, axis, keepdims=False) for k in range(len(items))]
    else:
        ends = np.cumsum([v.shape[axis] for v in items])
        data = data.reshape((*items[0].shape[:axis], int(ends[-1]), *items[0].shape[axis + 1 :]))
        parts = jnp.split(data, ends[:-1], axis)
    base = forward_array(name, ctx) or x
    return arrays.gradient_like(TensorArray(tuple(parts)), base)
