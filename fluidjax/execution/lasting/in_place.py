"""Memory of the host that a device computes on in place: a run is given what was written there before it."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

MOST = 4 << 20  # bytes of what one run is fed so; larger batches would keep twice their memory, and take longer than it


def in_place(memory: np.ndarray) -> Any:
    """An array of the device on this memory; None where the device has made a copy."""
    array = jax.device_put(memory, may_alias=True)
    return array if not memory.size or array.unsafe_buffer_pointer() == memory.ctypes.data else None
