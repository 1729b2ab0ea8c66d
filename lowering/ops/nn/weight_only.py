"""Products with weights of 8 or 4 bits, as Paddle 2 exports language models, and the order in which they are kept."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from lowering.dtypes import to_numpy
from lowering.ops.shared import own_names, round_half_away, wide
from lowering.registry import op

_BITS = {"weight_only_int8": 8, "int8": 8, "llm.int8": 8, "weight_only_int4": 4, "int4": 4}


def _bits(algo: str) -> int:
    if algo not in _BITS:
        raise ValueError(f"weights of {algo!r}; expected one of {sorted(_BITS)}; set one of them")
    return _BITS[algo]


def order(rows: int, columns: int, bits: int, arch: int) -> np.ndarray:
    """Where each number of a matrix [rows, columns] comes from that is kept for a GPU of compute capability ``arch``.

    Volta (70) reads rows; those after it columns, in tiles of 64 rows of 2 (of 8 bits) or 4 neighbouring columns, their
    rows as a warp's matrix unit takes them. In both, the even numbers of each 32 bits stand before the odd ones.
    """
    places = np.arange(rows * columns).reshape(rows, columns)
    word = 32 // bits
    if arch != 70:
        tiles, beside = 16 // bits * 8, 16 // bits
        if rows % 64 or columns % 64:
            raise ValueError(
                f"a weight [{rows}, {columns}] kept for a GPU of compute capability {arch}: expected multiples of 64;"
                " pad it"
            )
        row = np.arange(tiles)
        taken = 8 * (row % word // 2) + row % 2 + 2 * (row // word)
        places = places.reshape(-1, tiles, columns)[:, taken].reshape(rows, columns).T
        places = places.reshape(columns // beside, beside, rows // 64, 64).swapaxes(1, 2)
    evens_first = [0, 2, 1, 3] if bits == 8 else [0, 2, 4, 6, 1, 3, 5, 7]
    return places.reshape(-1, word)[:, evens_first].reshape(-1)


def _packed(numbers, bits):
    """Bytes of unsigned numbers, two of 4 bits in one, the first below."""
    numbers = numbers.astype(jnp.uint8)
    numbers = numbers if bits == 8 else numbers[0::2] | numbers[1::2] << 4
    return numbers.view(jnp.int8)


def _unpacked(kept, bits):
    """The unsigned numbers of bytes."""
    kept = kept.reshape(-1).view(jnp.uint8)
    return kept if bits == 8 else jnp.stack([kept & 15, kept >> 4], axis=1).reshape(-1)


def restored(weight, scale, algo: str, arch: int):
    """The matrix [inputs, outputs] in float32 that ``weight_quantize`` keeps as ``weight`` and ``scale`` [outputs]."""
    bits = _bits(algo)
    outputs, inputs = scale.shape[-1], weight.shape[-1]
    if algo == "llm.int8":
        return weight.T.astype(jnp.float32) * scale
    back = np.argsort(order(inputs, outputs, bits, arch))
    numbers = _unpacked(weight, bits).astype(jnp.float32)[back] - (1 << (bits - 1))
    return numbers.reshape(inputs, outputs) * scale.astype(jnp.float32)


def _cut(x, bits: int):
    """float32 without the last bits of its fraction: how Paddle's CPU kernels make numbers of half the size."""
    return (x.view(jnp.uint32) >> bits << bits).view(jnp.float32)


@op(out="out scale", slots=own_names("x"), lod=None, diff="")
def weight_quantize(x, *, algo: str = "weight_only_int8", arch: int = 80, group_size: int = -1):
    """scale [outputs] = max |x| / 127 (7 of 4 bits) of each column of x [inputs, outputs]; out = round(x / scale).

    out is int8 [outputs, inputs], in half as many rows of 4 bits, in the order that a GPU of compute capability
    ``arch`` reads; with algo llm.int8, the transposed matrix.
    """
    _of_whole_columns(group_size)
    bits = _bits(algo)
    bound = (1 << (bits - 1)) - 1
    step = _cut(jnp.abs(wide(x)).max(axis=0) / bound, 23 - jnp.finfo(x.dtype).nmant)
    numbers = jnp.clip(round_half_away(wide(x) / step), -bound, bound).astype(jnp.int32)
    scale = step.astype(x.dtype)
    if algo == "llm.int8":
        return numbers.T.astype(jnp.int8), scale
    kept = numbers.reshape(-1)[order(x.shape[0], x.shape[1], bits, arch)] + (1 << (bits - 1))
    return _packed(kept, bits).reshape(-1, x.shape[0]), scale


def _of_whole_columns(group_size):
    if group_size != -1:
        raise ValueError(f"group_size is {group_size}; expected -1, one scale for each column; quantize without groups")


@op(out="out", slots=own_names("x scale"), lod=None, diff="")
def weight_dequantize(x, scale, *, algo: str = "weight_only_int8", out_dtype: int = 4, group_size: int = -1):
    """out [inputs, outputs]: the matrix that ``weight_quantize`` kept for compute capability 80."""
    _of_whole_columns(group_size)
    return restored(x, scale, algo, 80).astype(to_numpy(out_dtype))


@op(out="out", slots=own_names("x weight bias weight_scale"), lod=None, diff="")
def weight_only_linear(
    x, weight, weight_scale, bias=None, *, weight_dtype: str = "int8", arch: int = 80, group_size: int = -1
):
    """out = x W + bias with the matrix W that ``weight_quantize`` kept for compute capability ``arch``."""
    _of_whole_columns(group_size)
    matrix = restored(weight, weight_scale, weight_dtype, arch).astype(x.dtype)
    return x @ matrix if bias is None else x @ matrix + bias


@op(out="out", slots=own_names("x weight bias weight_scale"), lod=None, diff="")
def llm_int8_linear(x, weight, weight_scale, bias=None, *, threshold: float = 6.0):
    """out = x W + bias, W [inputs, outputs] = weight^T * weight_scale: columns of x beyond the threshold as they are.

    The others are rounded to int8, each row by its largest magnitude over 127, and multiplied as integers.
    """
    rows = wide(x).reshape(-1, x.shape[-1])
    far = (jnp.abs(rows) > threshold).any(axis=0)
    near = jnp.where(far, 0, rows)
    step = jnp.abs(near).max(axis=1, keepdims=True) / 127
    numbers = round_half_away(near / jnp.where(step > 0, step, 1)).astype(jnp.int8)
    product = jnp.matmul(numbers, weight.T, preferred_element_type=jnp.int32).astype(jnp.float32) * step
    product = (product + jnp.where(far, rows, 0) @ weight.T.astype(jnp.float32)) * weight_scale
    product = product.reshape(*x.shape[:-1], -1).astype(x.dtype)
    return product if bias is None else product + bias
