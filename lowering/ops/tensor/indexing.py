"""Gathering and scattering by index tensors.

If Fluid writes several values to one position, the last one remains; ``_last_writer`` guarantees this on every
device, which a plain XLA scatter does not.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from lowering.engine.align import paired
from lowering.engine.checks import Demand
from lowering.errors import Misfit, NeedsExact
from lowering.ops import fitting
from lowering.ops.shared import concrete_scalar
from lowering.program import PADDLE_2
from lowering.ragged.infer import like
from lowering.ragged.rows import row_gradient, row_numbers
from lowering.registry import MASKED, WISE, op
from lowering.values import LoDArray, Meta, fill_padding, row_mask
from lowering.wide.sizes import sizes


def _column(rows: Any, ndim: int) -> Any:
    return rows.reshape((-1,) + (1,) * (ndim - 1))


def _last_writer(index: Any, size: int) -> Any:
    """For each of ``size`` places, 1 + the position of its last occurrence in ``index``; 0 where there is none."""
    order = jnp.arange(1, index.shape[0] + 1, dtype=np.int32)
    return jnp.zeros((size,), np.int32).at[index].max(order, mode="drop")


def _overwritten(base: Any, index: Any, updates: Any) -> Any:
    """``base`` with row index[i] replaced by updates[i], the last one winning."""
    if not index.shape[0]:
        return base
    writer = _last_writer(index, base.shape[0])
    return jnp.where(_column(writer > 0, base.ndim), jnp.asarray(updates)[jnp.maximum(writer - 1, 0)], base)


def _along(axis: int, tensor) -> int:
    return axis if tensor is None else int(concrete_scalar(tensor, "gather: the axis"))


@op(lod=None, diff="x", rows=MASKED, linear=True, newer="axis axis_")
def gather(x: LoDArray, index: LoDArray, axis=None, *, overwrite: bool = True, axis_: int = 0):
    """Out[i] = X[Index[i]]; Index [N] or [N, 1]. Paddle 2 gathers along any ``axis``.

    For a row gathered several times, the last gradient wins with ``overwrite`` (Fluid's default), else they accumulate;
    in Paddle 2 they always accumulate.
    """
    del overwrite
    if along := _along(axis_, axis):
        return jnp.take(x.data, index.data.reshape(-1), axis=along)
    out = jnp.asarray(x.data)[index.data.reshape(-1)]
    return LoDArray(out, (), index.nrows) if index.padded else out


@gather.fits
def _(index):
    _places("Index", index)


def _places(name, var):
    fitting.rank(name, var, 1, 2)
    if len(var.shape) == 2:
        fitting.dim(name, var, 1, 1)


@gather.check
def _(x: Meta, index, *, axis_):
    return [Demand("index", index, 0, x.shape[axis_] if x.nrows is None or axis_ else x.nrows)]


@gather.grad(rows=MASKED)
def _(x: Meta, index: LoDArray, d_out: LoDArray, axis=None, *, overwrite, axis_, ctx):
    """Padding rows of Index (copies of a valid id) are sent outside, so that they overwrite nothing."""
    zeros = jnp.zeros(x.shape, d_out.dtype)
    flat = index.data.reshape(-1)
    if along := _along(axis_, axis):
        return zeros.at[(slice(None),) * (along % zeros.ndim) + (flat,)].add(d_out.data)
    overwrite = overwrite and ctx.release < PADDLE_2
    if index.padded:
        flat = jnp.where(row_mask(index, 1), flat, x.shape[0])
    grad = _overwritten(zeros, flat, d_out.data) if overwrite else zeros.at[flat].add(d_out.data, mode="drop")
    return grad if x.nrows is None else LoDArray(grad, x.lod, x.nrows)


def _split_index(index: Any, x: Any) -> tuple[Any, ...]:
    """The parts of Index [..., parts], each of which addresses one dim of X."""
    parts, rank = index.shape[-1], len(x.shape)
    if parts > rank:  # told before they are split, as shape inference tries thousands
        raise ValueError(f"the last dim of Index addresses {parts} dims of X, which has {rank}: at most {rank} fit")
    return tuple(index[..., i] for i in range(parts))


def _nd_demands(x, index):
    """Each part of an index addresses one of the first dims of X."""
    size = sizes(x.shape[: index.shape[-1]])
    return [Demand("index", index, 0, size)] if index.shape[-1] else []


def _addresses(x: Any, index: Any) -> None:
    """The last dim of Index addresses dims of X; the words are those that scripts look for."""
    if len(index.shape) and index.shape[-1] > len(x.shape):
        raise Misfit(
            "Input(Index).shape[-1] should be no greater than Input(X).rank, received an Index of shape"
            f" {list(index.shape)} and an X of shape {list(x.shape)}"
        )


def _by_rows(rows: LoDArray, out: Any, *, backward: bool = False) -> Any:
    """``out`` as rows that follow those of ``rows``, where these are padded."""
    return LoDArray(fill_padding(out, rows.nrows, backward=backward), (), rows.nrows) if rows.padded else out


def _aligned(*rows: LoDArray) -> None:
    if len({(v.padded, v.capacity if v.padded else 0) for v in rows}) > 1:
        raise NeedsExact("an op that gathers or scatters meets padded rows that are not those of its index")


def _whole(x: LoDArray | Meta) -> Any:
    """The data of X, of which any row may be meant."""
    if x.nrows is not None:
        raise NeedsExact("an op gathers from padded rows, or scatters into them")
    return getattr(x, "data", None)


def _valid(index: LoDArray, flat: Any, size: int) -> Any:
    """Row numbers ``flat``; those of padding rows, copies of a valid one, are sent outside of ``size`` rows."""
    return jnp.where(row_mask(index, 1), flat, size) if index.padded else flat


@op(diff="x", rows=MASKED)
def gather_nd(x: LoDArray, index: LoDArray):
    """Out = X[Index[..., 0], Index[..., 1], ...]; the last dimension of Index addresses the leading ones of X."""
    data = _whole(x)
    if index.shape[-1] == 0:
        return _by_rows(index, jnp.broadcast_to(data, (*index.shape[:-1], *x.shape)))
    return _by_rows(index, jnp.asarray(data)[_split_index(index.data, x)])


@gather_nd.fits
def _(x, index):
    _addresses(x, index)


@gather_nd.check
def _(x: Meta, index):
    return _nd_demands(x, index)


@gather_nd.grad(rows=MASKED)
def _(x: Meta, index: LoDArray, d_out: LoDArray):
    """Padding rows of Out@GRAD are zero, so they add nothing to the row that Index names there."""
    _whole(x)
    _aligned(index, d_out)
    if index.shape[-1] == 0:
        return jnp.sum(d_out.data, axis=tuple(range(len(index.shape) - 1)))
    return jnp.zeros(x.shape, d_out.dtype).at[_split_index(index.data, x)].add(d_out.data)


@op(lod=None, diff="x updates", inplace={"Out": "x"}, rows=MASKED)
def scatter(x: LoDArray, ids: LoDArray, updates: LoDArray, *, ctx, overwrite: bool = True):
    """Out = X with row Ids[i] replaced by Updates[i], or (not ``overwrite``) by the sum of its updates."""
    ids, updates = paired(ctx.runner, ctx.op, ids, updates)
    if ids.shape[0] != updates.shape[0]:
        raise Misfit(f"Updates and Ids should have same batch-size, received {updates.shape[0]} and {ids.shape[0]}")
    flat = _valid(ids, ids.data.reshape(-1), x.shape[0])
    if overwrite:
        return _by_rows(x, _overwritten(x.data, flat, updates.data))
    hit = jnp.zeros((x.shape[0],), np.bool_).at[flat].set(True, mode="drop")
    return _by_rows(x, jnp.where(_column(hit, x.data.ndim), 0, x.data).at[flat].add(updates.data, mode="drop"))


@scatter.fits
def _(x, ids, updates):
    _places("Ids", ids)
    fitting.same("the first dims of Ids and Updates", ids.shape[:1], updates.shape[:1])
    fitting.same("the dims of X and Updates but the first", x.shape[1:], updates.shape[1:])


@scatter.check
def _(x: Meta, ids):
    return [Demand("ids", ids, 0, x.shape[0] if x.nrows is None else x.nrows)]


@scatter.grad(rows=MASKED)
def _(ids: LoDArray, updates: Meta, d_out: LoDArray, *, ctx):
    """As in Fluid's kernel, X@GRAD is Out@GRAD itself, including replaced rows; since Paddle 2 these are zero.

    Where Updates has other capacity than Ids, their rows are equally many (see ``scatter``).
    """
    whole, flat = jnp.asarray(d_out.data), ids.data.reshape(-1)
    left = whole.at[_valid(ids, flat, d_out.shape[0])].set(0, mode="drop") if ctx.release >= PADDLE_2 else whole
    rows = row_numbers(updates.capacity)
    part = whole[flat[np.minimum(rows, ids.capacity - 1)]] if ids.padded else whole[flat]
    return _by_rows(d_out, left, backward=True), row_gradient(updates, part)


@op(diff="x updates", rows=MASKED)
def scatter_nd_add(x: LoDArray, index: LoDArray, updates: LoDArray):
    """Out = X with Updates added at Index (see gather_nd); repeated indices accumulate."""
    data, given = _whole(x), updates.data
    _aligned(index, updates)
    if index.padded:
        given = fill_padding(given, index.nrows, backward=True)
    if index.shape[-1] == 0:
        return data + jnp.sum(given.reshape(-1, *x.shape), axis=0, dtype=x.dtype)
    return jnp.asarray(data).at[_split_index(index.data, x)].add(given)


@scatter_nd_add.fits
def _(x, index):
    _addresses(x, index)


@scatter_nd_add.check
def _(x: Meta, index):
    return _nd_demands(x, index)


@scatter_nd_add.grad(rows=MASKED)
def _(index: LoDArray, updates: Meta, d_out: LoDArray):
    whole = _whole(d_out)
    if index.shape[-1] == 0:
        return whole, _by_rows(index, jnp.broadcast_to(whole, updates.shape), backward=True)
    return whole, _by_rows(index, jnp.asarray(whole)[_split_index(index.data, d_out)], backward=True)


def _along_rows(attrs: Any, ndim: int) -> Any:
    return MASKED if int(attrs["dim"]) == 0 else None


@op(diff="x", rows=_along_rows)
def index_select(x: LoDArray, index: LoDArray, *, dim: int = 0):
    """Out = the slices Index [N] of X along ``dim``."""
    return _by_rows(index, jnp.take(_whole(x), index.data.reshape(-1), axis=dim))


@index_select.fits
def _(x, index, *, dim):
    fitting.axis_of("dim", dim, len(x.shape))
    fitting.rank("Index", index, 1, 2)
    if len(index.shape) == 2:
        fitting.dim("Index", index, 1, 1)


@index_select.check
def _(x: Meta, index, *, dim):
    return [Demand("index", index, 0, x.shape[dim])]


@index_select.grad(rows=_along_rows)
def _(x: Meta, index: LoDArray, d_out: LoDArray, *, dim):
    _whole(x)
    _aligned(index, d_out)
    at = (slice(None),) * (dim % len(x.shape)) + (index.data.reshape(-1),)
    return jnp.zeros(x.shape, d_out.dtype).at[at].add(d_out.data)


def _row_index(index: Any) -> tuple[Any, Any]:
    return jnp.arange(index.shape[0], dtype=index.dtype)[:, None], index


@op(diff="x", lod="index", rows=WISE)
def index_sample(x, index):
    """Out[b, j] = X[b, Index[b, j]]."""
    return jnp.asarray(x)[_row_index(index)]


@index_sample.fits
def _(x, index):
    fitting.rank("X", x, 2)
    fitting.rank("Index", index, 2)
    fitting.same("the numbers of rows of X and Index", x.shape[:1], index.shape[:1])


@index_sample.check
def _(x: Meta, index):
    return [Demand("index", index, 0, x.shape[1])]


@index_sample.grad
def _(x: Meta, index, d_out):
    return jnp.zeros(x.shape, d_out.dtype).at[_row_index(index)].add(d_out)


@op(diff="x", lod=None, rows=WISE, infer=like("X", level=0))
def multiplex(ids, x: list):
    """Out[b] = X[Ids[b]][b]: each row taken from the X selected by Ids [B, 1]."""
    return jnp.stack(x)[ids.reshape(-1), jnp.arange(x[0].shape[0])]


@multiplex.check
def _(ids, x: list[Meta]):
    return [Demand("ids", ids, 0, len(x))]


@multiplex.grad
def _(ids, d_out, *, ctx):
    chosen = ids.reshape(-1)
    return [jnp.where(_column(chosen == i, d_out.ndim), d_out, 0) for i in range(ctx.arity("X@GRAD"))]


@op(diff="x y", rows=WISE)
def where(condition, x, y):
    """Out = X where Condition, else Y; all of the same shape."""
    return jnp.where(condition, x, y)


@where.grad
def _(condition, x: Meta, y: Meta, d_out):
    return jnp.where(condition, d_out, 0), jnp.where(condition, 0, d_out)


@op(diff="", rows=WISE)
def shard_index(x, *, index_num: int, nshards: int, shard_id: int, ignore_value: int = -1):
    """Out = X's index within shard ``shard_id`` of ``nshards`` equal ones, ignore_value if it lies in another."""
    size = (index_num + nshards - 1) // nshards
    return jnp.where(x // size == shard_id, x % size, jnp.asarray(ignore_value, x.dtype))


@shard_index.check
def _(x, *, index_num):
    return [Demand("x", x, None, index_num)]


@op(diff="", lod=None, rows=None)
def gather_tree(ids, parents):
    """Out [T, B, W] = complete beams, backtracking Ids from the last step along Parents."""

    def back(beam: Any, step: Any) -> tuple[Any, Any]:
        of_ids, of_parents = (jnp.take_along_axis(part, beam, axis=-1) for part in step)
        return of_parents, of_ids

    last = jnp.broadcast_to(jnp.arange(ids.shape[2], dtype=parents.dtype), ids.shape[1:])
    return lax.scan(back, last, (ids, parents), reverse=True)[1]


@gather_tree.check
def _(parents):
    return [Demand("parents", parents, 0, parents.shape[2])]
