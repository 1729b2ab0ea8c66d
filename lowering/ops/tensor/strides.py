"""Views of a tensor's memory, as in Paddle 2: here values of their own, for nothing is written in place."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from lowering.dtypes import to_numpy
from lowering.ops.shared import own_names
from lowering.registry import op

_VIEW = {"out": "out", "slots": own_names("input"), "lod": None, "grad": "vjp", "reads": "input"}


@op(**_VIEW)
def as_strided(input, *, dims: list[int], stride: list[int], offset: int = 0):
    """out[i, j ...] = the number at place offset / (its bytes) + i stride[0] + j stride[1] ... of input's memory."""
    steps = (np.arange(n) * step for n, step in zip(dims, stride, strict=True))
    first, rest = divmod(offset, input.dtype.itemsize)
    places = first + sum(np.ix_(*steps), np.zeros((), np.int64))
    if rest or places.size and (places.min() < 0 or places.max() >= input.size):
        raise ValueError(
            f"as_strided: places {places.min()} to {places.max()} of {input.size} numbers, from byte {offset};"
            " expected whole numbers, all within; give dims, stride and offset of the same memory"
        )
    return input.reshape(-1)[places]


@op(**_VIEW)
def tensor_unfold(input, *, axis: int = 0, size: int, step: int):
    """out [..., windows, ..., size]: windows of ``size`` along ``axis``, a ``step`` apart, their numbers last."""
    axis %= input.ndim
    starts = np.arange(0, input.shape[axis] - size + 1, step)
    windows = jnp.take(input, starts[:, None] + np.arange(size), axis=axis)
    return jnp.moveaxis(windows, axis + 1, -1)


@op(**_VIEW)
def view_shape(input, *, dims: list[int]):
    """out = input with other dims; one may be -1."""
    return input.reshape(dims)


@op(out="out", slots=own_names("input"), lod=None, diff="")
def view_dtype(input, *, dtype: int):
    """out = the bytes of input as numbers of another type; the last dim grows or shrinks as their sizes do."""
    new = to_numpy(dtype)
    ratio = new.itemsize // input.dtype.itemsize
    if ratio > 1:
        input = input.reshape(*input.shape[:-1], -1, ratio)
    out = jax.lax.bitcast_convert_type(input, new)
    return out.reshape(*out.shape[:-2], -1) if out.ndim > input.ndim else out


@op(out="out", slots=own_names("x"), lod=None, grad="vjp", reads="x")
def index_select_strided(x, *, index: int, axis: int = 0):
    """out = x at one index of ``axis``, which goes away."""
    return jnp.take(x, index, axis=axis)
