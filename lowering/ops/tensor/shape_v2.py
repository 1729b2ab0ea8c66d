"""Shape changes as in Paddle 2: flattened ranges, broadcasting, tiling."""

from __future__ import annotations

from math import prod

import jax.numpy as jnp

from lowering.ops.shared import declared_shape, outputs_like, shape_from, zero_rows
from lowering.ops.tensor.shape import keep_rows
from lowering.program import VarInfo
from lowering.registry import MASKED, op
from lowering.values import LoDArray, Meta


def _flat_shape(shape, start: int, stop: int) -> tuple[int, ...]:
    if not shape:
        return (1,)
    first, last = start % len(shape), stop % len(shape)
    merged = shape[first : last + 1]
    return (*shape[:first], -1 if any(n < 0 for n in merged) else prod(merged), *shape[last + 1 :])


def _infer_flat(op, var_of):
    x = var_of(op.inputs["X"][0])
    dims = _flat_shape(x.shape, int(op.attrs.get("start_axis", 1)), int(op.attrs.get("stop_axis", 1)))
    info = VarInfo(dims, x.dtype, x.lod_level)
    return outputs_like(op, "Out", info) | outputs_like(op, "XShape", VarInfo((0, *x.shape), x.dtype, x.lod_level))


@op(out="Out XShape?~", rows=MASKED, infer=_infer_flat, linear=True)
def flatten_contiguous_range(x: LoDArray, *, start_axis: int = 1, stop_axis: int = 1):
    """Out = X with dimensions ``start_axis`` to ``stop_axis`` flattened; XShape keeps X's shape for the gradient."""
    out = x.data.reshape(_flat_shape(x.shape, start_axis, stop_axis))
    return keep_rows(x, out), zero_rows(x)


@flatten_contiguous_range.grad(rows=None)
def _(x_shape: Meta, d_out):
    return d_out.reshape(x_shape.shape[1:])


def _aligned(shape, rank: int) -> tuple[int, ...]:
    return (1,) * (rank - len(shape)) + tuple(shape)


def _infer_expand(op, var_of):
    x = var_of(op.inputs["X"][0])
    dims = declared_shape(op, var_of, "shape", "Shape", "expand_shapes_tensor")
    if dims is None:
        return {}
    own = _aligned(x.shape, len(dims))
    return outputs_like(op, "Out", VarInfo(tuple(n if d == -1 else d for n, d in zip(own, dims, strict=True)), x.dtype))


@op(
    diff="x", grad="vjp", reads="x shape expand_shapes_tensor", infer=_infer_expand, lod=None,
    slots={"expand_shapes_tensor": "expand_shapes_tensor"},
)  # fmt: skip
def expand_v2(x, shape=None, expand_shapes_tensor: list = None, *, shape_: list[int] = ()):
    """Out = X broadcast to ``shape`` (a tensor, a list of tensors, or the attribute); -1 keeps a dimension of X."""
    dims = shape_from(shape_, shape, expand_shapes_tensor, "expand_v2: the shape")
    own = _aligned(x.shape, len(dims))
    return jnp.broadcast_to(x, [n if d == -1 else d for n, d in zip(own, dims, strict=True)])


@op(diff="x", grad="vjp", reads="x y", lod=None)
def expand_as_v2(x, y: Meta = None, *, target_shape: list[int] = ()):
    """Out = X broadcast to the shape of Y, or to ``target_shape``."""
    return jnp.broadcast_to(x, tuple(target_shape if y is None else y.shape))


def _infer_tile(op, var_of):
    x = var_of(op.inputs["X"][0])
    times = declared_shape(op, var_of, "repeat_times", "RepeatTimes", "repeat_times_tensor")
    if times is None:
        return {}
    rank = max(len(times), len(x.shape))
    sizes = zip(_aligned(x.shape, rank), _aligned(times, rank), strict=True)
    return outputs_like(op, "Out", VarInfo(tuple(n * t if n >= 0 and t >= 0 else -1 for n, t in sizes), x.dtype))


@op(
    diff="x", grad="vjp", reads="x repeat_times repeat_times_tensor", infer=_infer_tile, lod=None,
    slots={"repeat_times_tensor": "repeat_times_tensor"},
)  # fmt: skip
def tile(x, repeat_times=None, repeat_times_tensor: list = None, *, repeat_times_: list[int] = ()):
    """Out = X tiled along each dimension, with missing leading dimensions taken as 1."""
    return jnp.tile(x, shape_from(repeat_times_, repeat_times, repeat_times_tensor, "tile: the repeats"))


@op(out="Out*", grad="vjp", reads="x", lod=None)
def broadcast_tensors(x: list):
    """Out = all X, broadcast to a common shape."""
    return list(jnp.broadcast_arrays(*x))
