"""Collectives: communication between the devices of a mesh; on a single device, each is the identity.

Inside ``shard_map`` over the mesh axis named ``AXIS`` they become lax collectives. The ring is always that axis.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from lowering.mesh import AXIS, over_mesh
from lowering.program import OpSpec
from lowering.registry import Long, op
from lowering.values import Meta

_COMMON = {"vendor": "ring_id use_calc_stream", "diff": "x"}


def _reduced(reduce):
    return lambda x: reduce(x, AXIS) if over_mesh() else x


_sum, _max, _min = _reduced(lax.psum), _reduced(lax.pmax), _reduced(lax.pmin)


@op(**_COMMON)
def c_allreduce_sum(x):
    """Out = the sum of X over all devices."""
    return _sum(x)


@c_allreduce_sum.grad_maker
def _(g):
    return [OpSpec("c_allreduce_sum", {"X": g.output_grad("Out")}, {"Out": g.input_grad("X")}, g.attrs)]


@op(**_COMMON)
def c_allreduce_max(x):
    """Out = the elementwise maximum of X over all devices."""
    return _max(x)


@op(**_COMMON)
def c_allreduce_min(x):
    """Out = the elementwise minimum of X over all devices."""
    return _min(x)


@op(**_COMMON)
def c_allreduce_prod(x):
    """Out = the elementwise product of X over all devices."""
    return jnp.prod(lax.all_gather(x, AXIS), axis=0, dtype=x.dtype) if over_mesh() else x


@op(lod=None, **_COMMON)
def c_allgather(x, *, nranks: int):
    """Out = X of all devices, concatenated along axis 0."""
    return lax.all_gather(x, AXIS, tiled=True) if over_mesh() else x


@c_allgather.grad_maker
def _(g):
    return [OpSpec("c_reducescatter", {"X": g.output_grad("Out")}, {"Out": g.input_grad("X")}, g.attrs)]


@op(lod=None, **_COMMON)
def c_reducescatter(x, *, nranks: int = 1):
    """Out = this device's share along axis 0 of the sum of X over all devices."""
    return lax.psum_scatter(x, AXIS, tiled=True) if over_mesh() else x


@op(**_COMMON)
def c_broadcast(x, *, root: int = 0):
    """Out = X of device ``root``."""
    return lax.all_gather(x, AXIS)[root] if over_mesh() else x


@op(diff="")
def c_sync_calc_stream(x):
    """Out = X: XLA orders computation and communication itself."""
    return x


@op(vendor="ring_id", diff="")
def c_sync_comm_stream(x):
    """Out = X: XLA orders computation and communication itself."""
    return x


@op(vendor="sync_mode", diff="x")
def allreduce(x, *, reduce_type: int = 0):
    """Out = the sum (0), product (1), maximum (2) or minimum (3) of X over all devices."""
    return (c_allreduce_sum, c_allreduce_prod, c_allreduce_max, c_allreduce_min)[reduce_type](x)


@op(vendor="sync_mode", diff="x")
def broadcast(x, *, root: int = 0):
    """Out = X of device ``root``."""
    return c_broadcast(x, root=root)


@op(**_COMMON)
def mp_allreduce_sum(x):
    """Out = the sum of X over all devices; the gradient is that of a sum which each device has on its own."""
    return _sum(x)


@mp_allreduce_sum.grad_maker
def _(g):
    return [OpSpec("c_identity", {"X": g.output_grad("Out")}, {"Out": g.input_grad("X")}, g.attrs)]


@op(**_COMMON)
def c_identity(x):
    """Out = X, which all devices have; the gradient is summed over them."""
    return x


@c_identity.grad_maker
def _(g):
    return [OpSpec("c_allreduce_sum", {"X": g.output_grad("Out")}, {"Out": g.input_grad("X")}, g.attrs)]


@op(lod=None, **_COMMON)
def c_concat(x, *, rank: int = 0, nranks: int = 1):
    """Out = X of all devices, concatenated along the last axis."""
    return lax.all_gather(x, AXIS, axis=x.ndim - 1, tiled=True) if over_mesh() else x


@c_concat.grad_maker
def _(g):
    return [OpSpec("c_split", {"X": g.output_grad("Out")}, {"Out": g.input_grad("X")}, g.attrs)]


@op(lod=None, **_COMMON)
def c_split(x, *, rank: int = 0, nranks: int = 1):
    """Out = the part of X along the last axis that is the device's own."""
    if not over_mesh():
        return x
    size = x.shape[-1] // lax.axis_size(AXIS)
    return lax.dynamic_slice_in_dim(x, lax.axis_index(AXIS) * size, size, x.ndim - 1)


@c_split.grad_maker
def _(g):
    return [OpSpec("c_concat", {"X": g.output_grad("Out")}, {"Out": g.input_grad("X")}, g.attrs)]


@op(slots={"w": "W"}, lod=None, diff="w")
def c_embedding(w, ids, *, start_index: Long = 0, vocab_size: Long = -1):
    """Out = rows Ids - start_index of W, and zeros for ids that W has no row of: another device has it."""
    place = ids - start_index
    own = (place >= 0) & (place < w.shape[0])
    return jnp.where(own[..., None], w[jnp.where(own, place, 0)], 0)


@c_embedding.grad
def _(w: Meta, ids, d_out, *, start_index):
    place = ids - start_index
    own = (place >= 0) & (place < w.shape[0])
    return jnp.zeros(w.shape, d_out.dtype).at[jnp.where(own, place, w.shape[0])].add(d_out, mode="drop")
