"""What passes between devices that run one program over a mesh; Fluid has no ops for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from lowering.engine.checks import Demand, needing
from lowering.engine.host import service
from lowering.mesh import AXIS
from lowering.ops.math.arithmetic import sum_
from lowering.registry import Long, Value, op
from lowering.values import Meta, SelectedRows

_FIRST_ROWS = 1024  # room for the rows of one process, until one of them has more


@op(lod=None)
def sum_over_devices(x: Value, *, ctx: Any):
    """Out = the sum of X over all devices; the rows of SelectedRows are concatenated.

    Processes compile for batches of their own, so they first bring their rows into a room that is the same for all.
    """
    if not isinstance(x, SelectedRows):
        return lax.psum(x, AXIS)
    return _joined(x if service("members")() == 1 else _in_room(x, ctx))


def _in_room(x: SelectedRows, ctx: Any) -> SelectedRows:
    """X in a room that depends on nothing but the overflows so far, of which each is one of all processes."""
    name, count = f"rows/{ctx.op.inputs['X'][0]}", x.rows.shape[0]
    room, held = ctx.runner.capacity(name, _FIRST_ROWS), count if x.nrows is None else x.nrows
    ctx.runner.overflow(name, needing(held, room))

    def fitted(array: Array) -> Array:
        spare = [(0, max(room - count, 0)), *[(0, 0)] * (array.ndim - 1)]
        return jnp.pad(array[: min(count, room)], spare)

    return SelectedRows(fitted(x.rows), fitted(x.values), x.height, jnp.minimum(jnp.asarray(held, jnp.int32), room))


@op(lod=None)
def device_share(x: Value, *, axis: int = 0):
    """Out = this device's part of X along an axis, of as many equal ones as there are devices.

    Of SelectedRows those of this device's part of the rows, counted from its first.
    """
    if isinstance(x, SelectedRows):
        return _own_rows(x)
    size = x.shape[axis] // lax.axis_size(AXIS)
    return lax.dynamic_slice_in_dim(x, lax.axis_index(AXIS) * size, size, axis)


@op(lod=None)
def device_shares(x: Value, *, axis: int = 0):
    """Out = X of all devices, concatenated along an axis. SelectedRows become those of the joined parts of the rows."""
    if not isinstance(x, SelectedRows):
        return lax.all_gather(x, AXIS, axis=axis, tiled=True)
    count = lax.axis_size(AXIS)
    first = (x.height * lax.axis_index(AXIS)).astype(x.rows.dtype)
    return _joined(replace(x, rows=x.rows + first, height=x.height * count))


@op(lod=None)
def sum_to_shares(x):
    """Out = this device's rows of the sum of X over all devices."""
    return lax.psum_scatter(x, AXIS, tiled=True)


@op(lod=None)
def columns_to_rows(x):
    """Out = all columns of this device's rows, where X has all rows of this device's columns, in the last axis."""
    return lax.all_to_all(x, AXIS, 0, x.ndim - 1, tiled=True)


@op(lod=None)
def rows_to_columns(x):
    """Out = all rows of this device's columns, where X has all columns of this device's rows."""
    return lax.all_to_all(x, AXIS, x.ndim - 1, 0, tiled=True)


@op(diff="w", lod=None)
def lookup_in_share(w, ids, *, padding_idx: Long = -1, column: bool = False, is_sparse: bool = False):
    """Out[..., D] = the rows Ids of a table of which W is this device's part, zeros for those of other devices.

    ``column``: the last dim of Ids, of one, does not count.
    """
    ids = ids.reshape(ids.shape[:-1]) if column else ids
    local, mine = _local(ids, w.shape[0], padding_idx)
    return jnp.where(mine[..., None], jnp.asarray(w)[local], jnp.zeros((), w.dtype))


@lookup_in_share.check
def _(w: Meta, ids, *, padding_idx):
    return [Demand("ids", ids, 0, w.shape[0] * lax.axis_size(AXIS), None if padding_idx == -1 else padding_idx)]


@lookup_in_share.grad
def _(w: Meta, ids, d_out, *, padding_idx, is_sparse):
    flat, values = ids.reshape(-1), d_out.reshape(-1, w.shape[1])
    local, mine = _local(flat, w.shape[0], padding_idx if not is_sparse else -1)
    if is_sparse:
        return _first(local, values, mine, w.shape[0])
    zeros = jnp.zeros(w.shape, values.dtype)
    return zeros.at[jnp.where(mine, local, w.shape[0])].add(values, mode="drop")


def _local(ids, rows, padding_idx):
    """(ids counted from the first of this device's ``rows``, 0 for those of others; whether they are its own)."""
    local = ids - (rows * lax.axis_index(AXIS)).astype(ids.dtype)
    mine = (local >= 0) & (local < rows)
    if padding_idx != -1:
        mine &= ids != padding_idx
    return jnp.where(mine, local, 0), mine


def _first(rows, values, chosen, height) -> SelectedRows:
    """SelectedRows of the ``chosen`` entries; the others come after them as padding."""
    order = jnp.argsort(~chosen, stable=True)
    kept = jnp.where(chosen[:, None], values, jnp.zeros((), values.dtype))
    return SelectedRows(rows[order].astype(jnp.int64), kept[order], height, jnp.sum(chosen))


def _own_rows(x: SelectedRows) -> SelectedRows:
    height = x.height // lax.axis_size(AXIS)
    local, mine = _local(x.rows, height, -1)
    if x.nrows is not None:
        mine &= jnp.arange(x.rows.shape[0]) < x.nrows
    flat = _first(local, x.values.reshape(x.values.shape[0], -1), mine, height)
    return replace(flat, values=flat.values.reshape(x.values.shape))


def _joined(x: SelectedRows) -> SelectedRows:
    rows, values = lax.all_gather(x.rows, AXIS), lax.all_gather(x.values, AXIS)
    sizes = [None] * len(rows) if x.nrows is None else lax.all_gather(x.nrows, AXIS)
    return sum_([replace(x, rows=r, values=v, nrows=n) for r, v, n in zip(rows, values, sizes, strict=True)])
