"""``jax.extend``: inspecting and building jaxprs, the bits of random keys, modules of MLIR."""

from __future__ import annotations

from functools import cache
from typing import Any


@cache
def extend() -> Any:
    """``jax.extend``. It imports all of Pallas, so it is imported only once something is traced."""
    import jax.extend.mlir.ir

    return jax.extend
