"""``jax.extend``: jaxprs taken apart and put together, the bits of random keys, modules of MLIR."""

from __future__ import annotations

from functools import cache
from typing import Any


@cache
def extend() -> Any:
    """``jax.extend``. It brings all of Pallas along, so it is imported where something is traced, if it is."""
    import jax.extend.mlir.ir

    return jax.extend
