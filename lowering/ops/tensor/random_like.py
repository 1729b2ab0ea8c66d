"""Random tensors in the shape of another, or with one of its sizes; their ``key`` is as in ``random``."""

from __future__ import annotations

import jax.numpy as jnp

from lowering.draws import random_bits
from lowering.dtypes import to_numpy
from lowering.ops.tensor.creation import batch_rows
from lowering.ops.tensor.random import with_diagonal
from lowering.registry import op
from lowering.sizes.counts import sizes_along, with_rows
from lowering.values import LoDArray, Meta, Wide


def _batch_like(input: Meta, draw, shape, input_dim_idx: int, output_dim_idx: int):
    """``draw`` of a shape that takes one dim from Input; rows of a padded Input stay rows, and room is room."""
    dims = list(shape)
    (dims[output_dim_idx],) = sizes_along(input, [input_dim_idx])
    out = draw(dims)
    if isinstance(input, Wide):
        return with_rows(out, dims)
    rows = input_dim_idx == output_dim_idx == 0 and input.padded
    return LoDArray(out, (), input.nrows) if rows else out


@op(rows=batch_rows, lod=None, diff="")
def uniform_random_batch_size_like(
    input: Meta,
    *,
    key,
    shape: list[int],
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
    min: float = -1.0,
    max: float = 1.0,
    seed: int = 0,
    diag_num: int = 0,
    diag_step: int = 0,
    diag_val: float = 1.0,
    dtype: int = 5,
):
    """Out = values from [min, max); dimension ``output_dim_idx`` equals Input's ``input_dim_idx``.

    ``diag_num`` elements of a diagonal may be set to ``diag_val``, as in uniform_random.
    """
    del seed
    kind = to_numpy(dtype)

    def drawn(dims):
        return with_diagonal(random_bits.uniform(key, dims, kind, min, max), dims, diag_num, diag_step, diag_val)

    return _batch_like(input, drawn, shape, input_dim_idx, output_dim_idx)


@op(rows=batch_rows, lod=None, diff="")
def gaussian_random_batch_size_like(
    input: Meta,
    *,
    key,
    shape: list[int],
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
    mean: float = 0.0,
    std: float = 1.0,
    seed: int = 0,
    dtype: int = 5,
):
    """Out = values from N(mean, std ** 2); dimension ``output_dim_idx`` equals Input's ``input_dim_idx``."""
    del seed
    kind = to_numpy(dtype)
    return _batch_like(
        input, lambda dims: random_bits.normal(key, dims, kind, mean, std), shape, input_dim_idx, output_dim_idx
    )


def _in_shape_of(x: Meta, draw):
    """``draw`` of the shape of X; room is room."""
    dims = sizes_along(x, range(len(x.shape)))
    return with_rows(draw(dims), dims)


@op(diff="", lod=None)
def exponential(x: Meta, *, key, lambda_: float = 1.0):
    """Out = values of the exponential distribution of rate ``lambda`` in the shape of X."""

    def drawn(dims):
        return (-jnp.log1p(-random_bits.uniform(key, dims, x.dtype, 0.0, 1.0)) / lambda_).astype(x.dtype)

    return _in_shape_of(x, drawn)


@op(diff="", lod=None)
def uniform_random_inplace(x: Meta, *, key, min: float = -1.0, max: float = 1.0, seed: int = 0,
                           diag_num: int = 0, diag_step: int = 0, diag_val: float = 1.0):  # fmt: skip
    """Out = values from [min, max) in the shape of X; ``diag_num`` elements of a diagonal may be ``diag_val``."""
    del seed
    return _in_shape_of(
        x,
        lambda dims: with_diagonal(
            random_bits.uniform(key, dims, x.dtype, min, max), dims, diag_num, diag_step, diag_val
        ),
    )


@op(slots={"x": "x"}, out="out", diff="", lod=None)
def gaussian_inplace(x: Meta, *, key, mean: float = 0.0, std: float = 1.0, seed: int = 0):
    """out = values from N(mean, std ** 2) in the shape of x."""
    del seed
    return _in_shape_of(x, lambda dims: random_bits.normal(key, dims, x.dtype, mean, std))
