"""Random tensors. A rule's ``key`` is the run's, folded with the op's output name, or made from its ``seed``."""

from __future__ import annotations

from math import prod

import jax
import jax.numpy as jnp
import numpy as np

from lowering.draws import random_bits
from lowering.dtypes import to_numpy
from lowering.errors import NeedsExact
from lowering.ops import fitting
from lowering.ops.shared import into_declared, outputs_like, shape_from
from lowering.ops.tensor.creation import infer_given_shape
from lowering.program import VarInfo
from lowering.ragged import infer as sequence_infer
from lowering.registry import WISE, Longs, Sizes, op
from lowering.sizes.counts import RowSize, sizes_along, with_rows
from lowering.values import LoDArray


def with_diagonal(out, dims, diag_num: int, diag_step: int, diag_val: float):
    """The first ``diag_num`` elements of a diagonal of a matrix, ``diag_step`` columns apart, set to a value."""
    if not diag_num:
        return out
    if any(isinstance(n, RowSize) and n.label is not None for n in dims):
        raise NeedsExact("a diagonal of a matrix with room")
    if prod(out.shape) <= (diag_num - 1) * (diag_step + 1):
        raise ValueError(
            f"{diag_num} elements {diag_step} columns apart do not fit into {list(out.shape)}; make diag_num smaller"
        )
    positions = np.arange(diag_num) * (diag_step + 1)
    return out.reshape(-1).at[positions].set(jnp.asarray(diag_val, out.dtype)).reshape(out.shape)


@op(infer=infer_given_shape, diff="")
def uniform_random(
    shape_tensor: Sizes = None,
    shape_tensor_list: list[Sizes] = None,
    *,
    key,
    ctx,
    shape: Longs = (),
    min: float = -1.0,
    max: float = 1.0,
    seed: int = 0,
    diag_num: int = 0,
    diag_step: int = 0,
    diag_val: float = 1.0,
    dtype: int = 5,
):
    """Out = values from [min, max) in ``shape``; ``diag_num`` elements of a diagonal may be set to ``diag_val``."""
    del seed
    dims = shape_from(shape, shape_tensor, shape_tensor_list, "uniform_random: the shape")
    out = random_bits.uniform(key, dims, to_numpy(dtype), min, max)
    given = shape_tensor is None and not shape_tensor_list
    height = dims[0] if given else -1  # as Paddle infers it: before it looks into tensors
    return into_declared(with_rows(with_diagonal(out, dims, diag_num, diag_step, diag_val), dims), ctx, height)


@uniform_random.fits
def _(shape_tensor=None):
    if shape_tensor is not None:
        fitting.rank("ShapeTensor", shape_tensor, 1)


@op(infer=infer_given_shape, vendor="use_mkldnn", diff="")
def gaussian_random(
    shape_tensor: Sizes = None,
    shape_tensor_list: list[Sizes] = None,
    *,
    key,
    shape: Longs = (),
    mean: float = 0.0,
    std: float = 1.0,
    seed: int = 0,
    dtype: int = 5,
):
    """Out = values from N(mean, std ** 2) in ``shape``."""
    del seed
    dims = shape_from(shape, shape_tensor, shape_tensor_list, "gaussian_random: the shape")
    return with_rows(random_bits.normal(key, dims, to_numpy(dtype), mean, std), dims)


@op(diff="")
def truncated_gaussian_random(
    *, key, shape: list[int], mean: float = 0.0, std: float = 1.0, seed: int = 0, dtype: int = 5
):
    """Out = values from N(mean, std ** 2) within two standard deviations."""
    del seed
    return random_bits.truncated_normal(key, shape, to_numpy(dtype), mean, std)


@op(infer=infer_given_shape, diff="")
def randint(
    shape_tensor: Sizes = None,
    shape_tensor_list: list[Sizes] = None,
    *,
    key,
    shape: Longs = (),
    low: int,
    high: int,
    dtype: int = 3,
    seed: int = 0,
):
    """Out = integers from [low, high) in ``shape``."""
    del seed
    dims = shape_from(shape, shape_tensor, shape_tensor_list, "randint: the shape")
    return with_rows(random_bits.integers(key, dims, to_numpy(dtype), low, high), dims)


@op(diff="")
def randperm(*, key, n: int, dtype: int = 3, seed: int = 0):
    """Out [n] = a random permutation of 0 .. n - 1."""
    del seed
    return random_bits.permutation(key, n).astype(to_numpy(dtype))


def _infer_sampling(op, var_of):
    """One id per row; the declared data type stays, as in Fluid."""
    x = var_of(op.inputs["X"][0])
    return outputs_like(op, "Out", VarInfo(tuple(x.shape[:-1]), None, x.lod_level))


@op(diff="", rows=WISE, infer=_infer_sampling)
def sampling_id(x, *, key, min: float = 0.0, max: float = 1.0, seed: int = 0):
    """Out[b] = a column sampled with the probabilities X[b, :], int64.

    A number from [min, max) is compared with the cumulative sums of the row; the last column takes the remainder.
    """
    del seed
    threshold = random_bits.uniform(key, (x.shape[0], 1), x.dtype, min, max)
    picked = jnp.sum((jnp.cumsum(x, axis=1) <= threshold).astype(np.int32), axis=1)
    return jnp.minimum(picked, x.shape[1] - 1).astype(np.int64)


@sampling_id.fits
def _(x):
    fitting.rank("X", x, 2)


@op(diff="")
def seed(*, key, seed: int = 0):
    """Out[1] = ``seed``, or a random int32 when it is 0."""
    if seed:
        return np.asarray([seed], np.int32)
    return random_bits.integers(key, (1,), np.int32, 1, np.iinfo(np.int32).max)


def _next_seed(given):
    """What a stateful seed tensor holds after a draw: a fixed scramble of it."""
    return jnp.asarray(given) * 6364136223846793005 + 1442695040888963407


def _state(seed, startup_seed: int):
    """The seed tensor's number; before the first run, the attribute's."""
    return jnp.asarray(startup_seed, np.int64) if seed is None else seed.reshape(-1)[0].astype(np.int64)


@sequence_infer.inferred
def _infer_shuffled(of):
    """Fluid leaves the number of shuffled rows open, and takes a seed without a shape for one of size 0."""
    x = of("X")
    return {
        "Out": (x.shape, x.lod_level, x.dtype),
        "ShuffleIdx": ((-1,), 0, None),
        "SeedOut": (of("Seed").shape or (0,), 0, None),
    }


@op(
    out="Out ShuffleIdx SeedOut",
    lod={"Out": "x", "SeedOut": "seed"},
    diff="x",
    absent="seed",
    begins={"seed": "startup_seed"},
    infer=_infer_shuffled,
)
def shuffle_batch(x, seed, *, startup_seed: int = 0):
    """Out = the rows of X (all dimensions but the last) in random order; ShuffleIdx[i] = the origin of Out's row i.

    Seed [1] is a counter in the program, updated by SeedOut, so that each run shuffles differently.
    """
    state = _state(seed, startup_seed)
    order = random_bits.permutation(jax.random.key(state), prod(x.shape[:-1]))
    rows = x.reshape(-1, x.shape[-1])
    return jnp.asarray(rows)[order].reshape(x.shape), order.astype(np.int64), _next_seed(state).reshape(1)


@shuffle_batch.grad
def _(shuffle_idx, d_out):
    rows = d_out.reshape(-1, d_out.shape[-1])
    return jnp.zeros_like(rows).at[shuffle_idx].set(rows).reshape(d_out.shape)


@op(out="Out SeedOut~", lod=None, diff="", absent="seed", begins={"seed": "startup_seed"}, undeclared="SeedOut")
def random_crop(x, seed, *, shape: list[int], startup_seed: int = 0):
    """Out = a window of ``shape`` over the last dimensions of X, at a random position for each leading index."""
    state = _state(seed, startup_seed)
    lead = x.ndim - len(shape)
    batch = x.reshape(-1, *x.shape[lead:])
    keys = jax.random.split(jax.random.key(state), len(shape))
    starts = [
        jax.random.randint(k, (batch.shape[0],), 0, n - w + 1)
        for k, n, w in zip(keys, batch.shape[1:], shape, strict=True)
    ]
    crop = jax.vmap(lambda row, *at: jax.lax.dynamic_slice(row, at, shape))(batch, *starts)
    return crop.reshape(*x.shape[:lead], *shape), _next_seed(state).reshape(1)


@op(diff="", lod=None)
def bernoulli(x: LoDArray, *, key):
    """Out = 1 with the probability X, else 0."""
    dims = sizes_along(x, range(len(x.shape)))
    return with_rows((random_bits.uniform(key, dims, x.dtype) < x.data).astype(x.dtype), dims)


@op(diff="", lod=None)
def multinomial(x, *, key, num_samples: int = 1, replacement: bool = False):
    """Out [..., num_samples] int64 = columns drawn with weights X [..., columns], each once unless ``replacement``."""
    shape = (*x.shape[:-1], num_samples if replacement else 1, x.shape[-1])
    noise = -jnp.log(-jnp.log(random_bits.uniform(key, shape, x.dtype, np.finfo(x.dtype).tiny, 1.0)))
    scores = jnp.log(x)[..., None, :] + noise
    drawn = jnp.argmax(scores, -1) if replacement else jax.lax.top_k(scores[..., 0, :], num_samples)[1]
    return drawn.astype(np.int64)


@op(lod=None)
def gumbel_softmax(x: LoDArray, *, key, temperature: float = 1.0, hard: bool = False, axis: int = -1):
    """Out = softmax((X + Gumbel noise) / temperature); ``hard``: one where it is largest, which has no gradient."""
    dims = sizes_along(x, range(len(x.shape)))
    noise = -jnp.log(-jnp.log(random_bits.uniform(key, dims, x.dtype, np.finfo(x.dtype).tiny, 1.0)))
    soft = jax.nn.softmax((x.data + noise) / temperature, axis)
    found = jax.nn.one_hot(jnp.argmax(soft, axis), x.shape[axis], axis=axis, dtype=x.dtype) if hard else soft
    return with_rows(found, dims)


@gumbel_softmax.grad
def _(out, d_out, *, temperature, axis):
    return out * (d_out - jnp.sum(d_out * out, axis, keepdims=True)) / temperature


@op(out="Out Noise", lod=None)
def rrelu(x: LoDArray, *, key, lower: float = 0.125, upper: float = 1 / 3, is_test: bool = False):
    """Out = X where it is positive, else X * Noise: drawn from [lower, upper), their middle in a test."""
    dims = sizes_along(x, range(len(x.shape)))
    drawn = (lower + upper) / 2 if is_test else random_bits.uniform(key, dims, x.dtype, lower, upper)
    noise = jnp.where(x.data > 0, 1, drawn).astype(x.dtype)
    return with_rows(x.data * noise, dims), with_rows(noise, dims)


@rrelu.grad
def _(noise, d_out):
    return d_out * noise


@op(diff="", lod=None)
def poisson(x, *, key):
    """Out = values of the Poisson distribution with mean X."""
    return jax.random.poisson(random_bits.device_key(key), x, dtype=np.int64).astype(x.dtype)


@op(slots={"alpha": "Alpha"}, diff="", lod=None)
def dirichlet(alpha, *, key):
    """Out = points of simplices, drawn by the Dirichlet distributions of the rows of Alpha."""
    return jax.random.dirichlet(random_bits.device_key(key), alpha, dtype=alpha.dtype)
