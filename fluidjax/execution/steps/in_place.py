"""Memory of the host that a device computes on in place: a run is given what was written there before it."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from lowering.host_arrays import empty

MOST = 4 << 20  # bytes of what one run is fed so; larger batches would keep twice their memory, and take longer than it


def in_place(memory: np.ndarray, device: jax.Device | None = None) -> Any:
    """An array of the device on this memory; None where the device has made a copy."""
    array = jax.device_put(memory, device, may_alias=True)
    return array if not memory.size or array.unsafe_buffer_pointer() == memory.ctypes.data else None


def room(like: np.ndarray) -> tuple[np.ndarray, Any] | None:
    """Memory for arrays of one form, and the device's array on it; None where there is none."""
    memory = empty(like.shape, like.dtype)
    array = in_place(memory)
    return None if array is None else (memory, array)
