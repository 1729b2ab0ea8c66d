"""Images as sequences of patches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lowering.ops import fitting
from lowering.ops.nn import windows
from lowering.ops.sequence import shapes
from lowering.ragged.rows import new_rows, row_numbers, take
from lowering.registry import MASKED, op
from lowering.values import Array, LoDArray, Meta, Wide, concrete
from lowering.wide.calls import ended
from lowering.wide.sizes import used_shape


class _Grid(NamedTuple):
    """The windows of images: how many there are room for, and how many a run has; both (rows, columns)."""

    room: tuple[int, int]
    used: tuple[Any, Any]

    @property
    def longest(self) -> int:
        """The most patches of an image."""
        return self.room[0] * self.room[1]

    @property
    def patches(self) -> Any:
        """The number of patches of each image."""
        return np.int32(1) * self.used[0] * self.used[1]


def _counts(size: Sequence[int], kernels: list[int], strides: list[int], paddings: list[int]) -> tuple[int, int]:
    pads = [(paddings[i], paddings[i + 2]) for i in range(2)]
    height, width = (windows.count(size[i], kernels[i], strides[i], pads[i]) for i in range(2))
    return height, width


def _grid(x: LoDArray | Meta | Wide, kernels: list[int], strides: list[int], paddings: list[int]) -> _Grid:
    room = _counts(x.shape[2:], kernels, strides, paddings)
    if not isinstance(x, Wide):
        return _Grid(room, room)
    more = [paddings[i] + paddings[i + 2] - kernels[i] for i in range(2)]
    height, width = ((n + more[i]) // strides[i] + 1 for i, n in enumerate(used_shape(x)[2:]))
    return _Grid(room, (height, width))


def _patches(x: Array, kernels: list[int], strides: list[int], paddings: list[int], size: tuple[int, int]) -> Array:
    """[n, oh, ow, c * kh * kw]: the patches of images [n, c, h, w], zeros outside."""
    up, left = paddings[:2]
    need = [(s - 1) * stride + k for s, stride, k in zip(size, strides, kernels, strict=True)]
    extra = [max(0, n - d - p) for n, d, p in zip(need, x.shape[2:], (up, left), strict=True)]
    x = jnp.pad(x, ((0, 0), (0, 0), (up, extra[0]), (left, extra[1])))
    parts = []
    for i in range(kernels[0]):
        for j in range(kernels[1]):
            rows = slice(i, i + (size[0] - 1) * strides[0] + 1, strides[0])
            parts.append(x[:, :, rows, j : j + (size[1] - 1) * strides[1] + 1 : strides[1]])
    return jnp.stack(parts, axis=2).reshape(x.shape[0], -1, *size).transpose(0, 2, 3, 1)


@op(diff="x", rows=MASKED, lod=None, infer=shapes.im2sequence)
def im2sequence(
    x: LoDArray,
    y=None,
    *,
    kernels: list[int],
    strides: list[int] = [1, 1],  # noqa: B006
    paddings: list[int] = [0, 0, 0, 0],  # noqa: B006
    out_stride: list[int] = [1, 1],  # noqa: B006
):
    """The patches of image i of X [n, c, h, w] form sequence i of Out [patches, c * kh * kw].

    Y [n, 2] gives each image's own height and width (before division by ``out_stride``) in a batch of several; their
    fractions do not count.
    """
    data = ended(x) if isinstance(x, Wide) else jnp.asarray(x.data)
    if y is not None and x.shape[0] > 1:
        real = -(-concrete(y, "the image sizes Y of im2sequence").astype(int) // np.asarray(out_stride))
        return _of_sizes(data, real, kernels, strides, paddings)
    grid = _grid(x, kernels, strides, paddings)
    rows = _patches(data, kernels, strides, paddings, grid.room)
    rows = rows.reshape(-1, rows.shape[-1])
    images = row_numbers(x.shape[0] + 1)
    if isinstance(x, Wide):
        return new_rows(take(rows, _places(grid, rows.shape[0])), (images * grid.patches,), LoDArray(data))
    if not x.padded:
        return LoDArray(rows, (images * np.int32(grid.longest),))
    off = jnp.minimum(images, x.nrows) * np.int32(grid.longest)
    return new_rows(rows, (off,), LoDArray(data, nseq=x.nrows), longest=(grid.longest,))


def _of_sizes(x: Array, real: Array, kernels: list[int], strides: list[int], paddings: list[int]) -> LoDArray:
    """Patches of the upper left part of each image, of which ``real`` has the height and width."""
    sizes = [_counts(tuple(r), kernels, strides, paddings) for r in real]
    largest = (max(h for h, _ in sizes), max(w for _, w in sizes))
    patches = _patches(x, kernels, strides, paddings, largest)
    parts = [p[:h, :w].reshape(h * w, -1) for p, (h, w) in zip(patches, sizes, strict=True)]
    off = np.concatenate([[0], np.cumsum([h * w for h, w in sizes])]).astype(np.int32)
    return LoDArray(jnp.concatenate(parts), (off,))


def _places(grid: _Grid, capacity: int) -> Array:
    """int32 [capacity]: where the patches that a run has are in the room for more, image by image."""
    image, place = jnp.divmod(row_numbers(capacity), grid.patches)
    row, column = jnp.divmod(place, grid.used[1])
    return (image * np.int32(grid.room[0]) + row) * np.int32(grid.room[1]) + column


@im2sequence.fits
def _(x):
    fitting.rank("X", x, 4)


@im2sequence.grad
def _(x: Meta, d_out: LoDArray, *, kernels: list[int], strides=[1, 1], paddings=[0, 0, 0, 0]):  # noqa: B006
    grid = _grid(x, kernels, strides, paddings)
    shape = jax.ShapeDtypeStruct(x.shape, d_out.dtype)
    spread = jax.linear_transpose(lambda v: _patches(v, kernels, strides, paddings, grid.room), shape)
    shape = (x.shape[0], *grid.room, -1)
    if not isinstance(x, Wide):
        return x.like(spread(d_out.data.reshape(shape))[0])
    image, row, column = (np.arange(n, dtype=np.int32) for n in (x.shape[0], *grid.room))
    at = image[:, None, None] * grid.patches + row[:, None] * grid.used[1] + column
    inside = (row[:, None] < grid.used[0]) & (column < grid.used[1])
    return spread(jnp.where(inside[..., None], take(d_out.data, at.reshape(-1)).reshape(shape), 0))[0]
