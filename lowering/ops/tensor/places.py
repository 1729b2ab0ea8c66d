"""The machine's devices as a value."""

from __future__ import annotations

import jax
import numpy as np

from lowering.errors import AttrError
from lowering.registry import op

_PLATFORMS = {"CPU": ("cpu",), "CUDA": ("gpu", "cuda", "rocm"), "AUTO": ()}


@op(out="Out", infer=lambda op, var_of: {})
def get_places(*, device_count: int = 0, device_type: str = "AUTO"):
    """Out = the indices of the first ``device_count`` devices of a kind (0: all); AUTO: those preferred by jax."""
    if device_type not in _PLATFORMS:
        raise AttrError(
            f"op get_places: device_type is {device_type!r}; expected one of {', '.join(_PLATFORMS)}. Give one of them"
        )
    if device_type == "CPU":
        found = device_count or 1  # as many as are asked for: they are threads
    else:
        wanted = _PLATFORMS[device_type]
        found = sum(not wanted or device.platform in wanted for device in jax.local_devices())
    return np.arange(device_count or found, dtype=np.int32)
