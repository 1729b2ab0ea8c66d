"""Collectives: communication between the devices of a mesh; on a single device, each is the identity.

Inside ``shard_map`` over the mesh axis named ``AXIS`` they become lax collectives. The ring is always that axis.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from lowering.mesh import AXIS, over_mesh
from lowering.program import OpSpec
from lowering.registry import op

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
    return jnp.prod(lax.all_gather(x, AXIS), axis=0) if over_mesh() else x


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
