"""Padding tensors."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from lowering.ops import fitting
from lowering.ops.shared import ints, names_in, outputs_like, transpose_of
from lowering.program import VarInfo
from lowering.registry import WISE, Wise, op
from lowering.values import LoDArray, Meta, Wide, data_of


def _pairs(paddings: list[int]) -> list[tuple[int, int]]:
    return list(zip(paddings[::2], paddings[1::2], strict=True))


def _off_padded(attrs, ndim):
    return WISE if not any(attrs["paddings"][:2]) else None


@op(rows=_off_padded)
def pad(x, *, paddings: list[int], pad_value: float = 0.0):
    """Out = X with paddings[2i] elements of ``pad_value`` before dimension i and paddings[2i + 1] after it."""
    return jnp.pad(x, _pairs(paddings), constant_values=jnp.asarray(pad_value, x.dtype))


@pad.fits
def _(x, *, paddings):
    fitting.as_many("paddings", paddings, 2 * len(x.shape))


@pad.grad
def _(d_out, *, paddings):
    pairs = zip(_pairs(paddings), d_out.shape, strict=True)
    return d_out[tuple(slice(before, n - after) for (before, after), n in pairs)]


@op(diff="y", rows=None)
def pad_constant_like(x: Meta, y, *, pad_value: float = 0.0):
    """Out = Y padded at the end of each dimension with ``pad_value`` to the shape of X."""
    margins = [(0, n - m) for n, m in zip(x.shape, y.shape, strict=True)]
    return jnp.pad(y, margins, constant_values=jnp.asarray(pad_value, y.dtype))


@pad_constant_like.grad
def _(y: Meta, d_out):
    return d_out[tuple(slice(0, n) for n in y.shape)]


_PAD_MODES = {"constant": "constant", "reflect": "reflect", "edge": "edge"}


def _pad2d(x: LoDArray | Wide, sides, mode, pad_value, data_format):
    top, bottom, left, right = sides
    image = [(top, bottom), (left, right)]
    margins = [(0, 0), (0, 0), *image] if data_format == "NCHW" else [(0, 0), *image, (0, 0)]
    if isinstance(x, Wide):
        roomy = {axis.dim for axis in x.axes}
        x = _pad_used(x, margins, mode, pad_value)
        margins = [(0, 0) if dim in roomy else sides for dim, sides in enumerate(margins)]
    x = data_of(x)
    fill = {"constant_values": jnp.asarray(pad_value, x.dtype)} if mode == "constant" else {}
    return jnp.pad(x, margins, mode=_PAD_MODES[mode], **fill)


def _pad_used(x: Wide, margins, mode, pad_value):
    """As ``jnp.pad`` of dims with room, around the used places: each of the result is one of them, or the value."""
    data = x.data
    for axis, size in zip(x.axes, x.counts, strict=True):
        dim, (before, after) = axis.dim, margins[axis.dim]
        if before or after:
            at = np.arange(before + data.shape[dim] + after, dtype=np.int32) - np.int32(before)
            inside = ((at >= 0) & (at < size)).reshape((-1,) + (1,) * (data.ndim - dim - 1))
            at = jnp.where(at < size, abs(at), 2 * (size - 1) - at) if mode == "reflect" else at
            data = jnp.take(data, jnp.clip(at, 0, size - 1), axis=dim)
            data = jnp.where(inside, data, jnp.asarray(pad_value, data.dtype)) if mode == "constant" else data
    return data


def _sides(paddings, tensor):
    return list(paddings) if tensor is None else ints(tensor, "pad2d: the paddings")


def _infer_pad2d(op, var_of):
    x = var_of(op.inputs["X"][0])
    at = (2, 3) if op.attrs.get("data_format", "NCHW") == "NCHW" else (1, 2)
    top, bottom, left, right = op.attrs.get("paddings") or [0] * 4
    dims = list(x.shape)
    for i, more in zip(at, (top + bottom, left + right), strict=True):
        dims[i] = -1 if names_in(op, "Paddings") or dims[i] < 0 else dims[i] + more
    return outputs_like(op, "Out", VarInfo(tuple(dims), x.dtype, x.lod_level))


@op(diff="x", rows=Wise("x"), infer=_infer_pad2d)
def pad2d(
    x: LoDArray,
    paddings=None,
    *,
    paddings_: list[int],
    pad_value: float = 0.0,
    mode: str = "constant",
    data_format: str = "NCHW",
):
    """Out = images X padded by [top, bottom, left, right]: constant, reflect (excluding the edge) or edge."""
    return _pad2d(x, _sides(paddings_, paddings), mode, pad_value, data_format)


@pad2d.fits
def _(x):
    fitting.rank("X", x, 4)


@pad2d.grad
def _(x: Meta, d_out, paddings=None, *, paddings_, mode, data_format):
    sides = _sides(paddings_, paddings)
    whole = x if isinstance(x, Wide) else LoDArray(x)
    return transpose_of(lambda v: _pad2d(whole.with_data(v), sides, mode, 0.0, data_format), x, d_out)
