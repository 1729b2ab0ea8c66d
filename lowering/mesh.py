"""The mesh over which a program may be traced: a row of devices, each with its own share of the inputs."""

from __future__ import annotations

from jax import lax

AXIS = "devices"


def over_mesh() -> bool:
    """Whether this trace runs inside the mesh's axis."""
    try:
        lax.axis_index(AXIS)
    except NameError:
        return False
    return True
