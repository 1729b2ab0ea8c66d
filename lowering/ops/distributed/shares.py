"""Communication between devices that run one program on a mesh; Fluid has no ops for it."""

from __future__ import annotations

from dataclasses import replace

from jax import lax

from lowering.mesh import AXIS
from lowering.ops.math.arithmetic import sum_
from lowering.registry import Value, op
from lowering.values import SelectedRows


@op(lod=None)
def sum_over_devices(x: Value):
    """Out = the sum of X over all devices; the rows of SelectedRows are concatenated."""
    if not isinstance(x, SelectedRows):
        return lax.psum(x, AXIS)
    rows, values = lax.all_gather(x.rows, AXIS), lax.all_gather(x.values, AXIS)
    sizes = [None] * len(rows) if x.nrows is None else lax.all_gather(x.nrows, AXIS)
    return sum_([replace(x, rows=r, values=v, nrows=n) for r, v, n in zip(rows, values, sizes, strict=True)])


@op(lod=None)
def device_share(x):
    """Out = this device's share of X along axis 0, divided equally among the devices."""
    rows = x.shape[0] // lax.axis_size(AXIS)
    return lax.dynamic_slice_in_dim(x, lax.axis_index(AXIS) * rows, rows)


@op(lod=None)
def device_shares(x):
    """Out = X of all devices, concatenated along axis 0."""
    return lax.all_gather(x, AXIS, tiled=True)
