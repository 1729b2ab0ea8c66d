"""Ops on pairs of sequences whose matrices differ in size: match matrices, their pooling and convolution.

The matrices of a batch are stored flattened, one after the other; their sizes follow from the LoD of two other
inputs, which these ops need on the host. Internally, a batch is padded to its largest matrix.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax

from lowering.ops.sequence import shapes
from lowering.ops.sequence.pad import padded_rows
from lowering.ragged.rows import offsets, take
from lowering.registry import MASKED, op
from lowering.values import Array, LoDArray, concrete


def _sizes(x: LoDArray, what: str) -> np.ndarray:
    return np.diff(concrete(offsets(x, 0), f"the LoD of {what}"))


def _positions(rows: np.ndarray, cols: np.ndarray, channels: int) -> tuple[np.ndarray, np.ndarray]:
    """(places in the padded batch [n, channels, max rows, max cols], flat: where each number lies; LoD offsets)."""
    height, width = int(rows.max(initial=0)), int(cols.max(initial=0))
    parts = []
    for i, (r, c) in enumerate(zip(rows, cols, strict=True)):
        block = np.arange(channels)[:, None, None] * height + np.arange(r)[None, :, None]
        parts.append(((i * channels * height + block) * width + np.arange(c)[None, None, :]).ravel())
    off = np.concatenate([[0], np.cumsum(rows * cols * channels)]).astype(np.int32)
    places = np.concatenate(parts) if parts else np.zeros(0)
    return places.astype(np.int32), off


def _padded(x: Array, rows: np.ndarray, cols: np.ndarray, channels: int, fill: float) -> Array:
    """[n, channels, max rows, max cols] of flat matrices."""
    places, _ = _positions(rows, cols, channels)
    if x.size < len(places):
        raise ValueError(
            f"X holds {x.size} numbers; expected rows * columns * channels of each matrix, {len(places)} in all: "
            f"rows {rows.tolist()} of ROW, columns {cols.tolist()} of COLUMN, {channels} channels"
        )
    shape = (len(rows), channels, int(rows.max(initial=0)), int(cols.max(initial=0)))
    full = jnp.full(int(np.prod(shape)), fill, x.dtype)
    return full.at[places].set(x.reshape(-1)[: len(places)], unique_indices=True).reshape(shape)


@op(out="Out Tmp", grad="vjp", lod=None, rows=MASKED, infer=shapes.match_matrix_tensor,
    reads="x y w tmp d_out")  # fmt: skip
def match_matrix_tensor(x: LoDArray, y: LoDArray, w, *, dim_t: int = 1):
    """Out of pair i, flat, is [dim_t, rows of X, rows of Y]: X_r W[:, t] Y_c; W [d, dim_t, d]. Tmp = X W."""
    rows, cols = _sizes(x, "X"), _sizes(y, "Y")
    tmp = jnp.dot(x.data, w.reshape(w.shape[0], -1)).reshape(x.capacity, dim_t, w.shape[2])
    zero = jnp.zeros((), x.dtype)
    left = padded_rows(tmp, offsets(x), int(rows.max(initial=0)), zero)
    right = padded_rows(y.data, offsets(y), int(cols.max(initial=0)), zero)
    full = jnp.einsum("nrtd,ncd->ntrc", left, right)
    places, off = _positions(rows, cols, dim_t)
    return LoDArray(take(full.reshape(-1), places)[:, None], (off,)), tmp.reshape(-1, 1)


@op(
    out="Out pos~",
    slots={"row": "ROW", "column": "COLUMN", "pos": "pos"},
    diff="x",
    grad="vjp",
    reads="x row column pos d_out",
    rows=MASKED,
    lod=None,
    infer=shapes.sequence_topk_avg_pooling,
)
def sequence_topk_avg_pooling(x: LoDArray, row: LoDArray, column: LoDArray, *, topks: list[int], channel_num: int):
    """For each row and channel of the matrices in X, the sums of the k largest values over k, for each k in ``topks``.

    Missing values of rows shorter than k count as zero. Out [rows, channels * len(topks)] has ROW's LoD; pos holds the
    columns, or -1.
    """
    rows, cols = _sizes(row, "ROW"), _sizes(column, "COLUMN")
    most = max(topks)
    full = _padded(x.data, rows, cols, channel_num, -np.inf)
    if full.shape[3] < most:
        full = jnp.pad(full, ((0, 0), (0, 0), (0, 0), (0, most - full.shape[3])), constant_values=-np.inf)
    best, where = lax.top_k(full, most)
    real = np.arange(most)[None, None, None, :] < cols[:, None, None, None]
    sums = jnp.cumsum(jnp.where(real, best, 0), axis=3)
    means = jnp.stack([sums[..., k - 1] / k for k in topks], axis=3)
    pos = jnp.where(real, where.astype(jnp.int32), -1)
    out = _row_major(means, rows)
    return LoDArray(out, (np.asarray(offsets(row, 0)),)), _row_major(pos, rows).reshape(-1)


def _row_major(x: Array, rows: np.ndarray) -> Array:
    """[sum of rows, channels * k] of [n, channels, max rows, k]."""
    flat = x.transpose(0, 2, 1, 3).reshape(x.shape[0] * x.shape[2], -1)
    index = np.concatenate([i * x.shape[2] + np.arange(r) for i, r in enumerate(rows)])
    return take(flat, index.astype(np.int32))


@op(
    out="Out Col",
    slots={"row": "ROW", "column": "COLUMN"},
    diff="x w",
    grad="vjp",
    reads="x row column w out col d_out",
    rows=MASKED,
    lod=None,
    infer=shapes.var_conv_2d,
)
def var_conv_2d(
    x: LoDArray,
    row: LoDArray,
    column: LoDArray,
    w,
    *,
    InputChannel: int = 1,
    OutputChannel: int = 1,
    StrideH: int = 1,
    StrideW: int = 1,
    KernelH: int = 1,
    KernelW: int = 1,
):
    """Convolve flattened images [channels, rows, cols] of different sizes, centred, with W [out, in * kh * kw].

    Col holds the patches [in * kh * kw, out rows * out cols] of each image.
    """
    rows, cols = _sizes(row, "ROW"), _sizes(column, "COLUMN")
    images = _padded(x.data, rows, cols, InputChannel, 0)
    out_rows, out_cols = _strided(rows, StrideH), _strided(cols, StrideW)
    patches = _centred_patches(images, (KernelH, KernelW), (StrideH, StrideW))
    full = jnp.einsum("nphw,op->nohw", patches, w)
    out_places, out_off = _positions(out_rows, out_cols, OutputChannel)
    col_places, col_off = _positions(out_rows, out_cols, patches.shape[1])
    out = LoDArray(take(full.reshape(-1), out_places)[:, None], (out_off,))
    return out, LoDArray(take(patches.reshape(-1), col_places)[:, None], (col_off,))


def _strided(sizes: np.ndarray, stride: int) -> np.ndarray:
    return np.where(sizes > 0, (sizes - 1) // stride + 1, 0)


def _centred_patches(images: Array, kernel: tuple[int, int], stride: tuple[int, int]) -> Array:
    """[n, channels * kh * kw, out rows, out cols]; a kernel of size k reaches k // 2 rows back."""
    before = [k // 2 for k in kernel]
    pads = [(0, 0), (0, 0), *((b, k - 1 - b) for b, k in zip(before, kernel, strict=True))]
    padded = jnp.pad(images, pads)
    height, width = images.shape[2:]
    parts = [
        padded[:, :, i : i + height : stride[0], j : j + width : stride[1]]
        for i in range(kernel[0])
        for j in range(kernel[1])
    ]
    stacked = jnp.stack(parts, axis=2)
    return stacked.reshape(stacked.shape[0], -1, *stacked.shape[3:])
