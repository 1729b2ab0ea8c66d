"""``jax.extend``: inspecting and building jaxprs, the bits of random keys, modules of MLIR."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any


@cache
def extend() -> Any:
    """``jax.extend``. It imports all of Pallas, so it is imported only once something is traced."""
    import jax.extend.mlir.ir

    return jax.extend


def scan_counts(params: Mapping[str, Any]) -> tuple[int, int]:
    """How many constants and how many carried values come first among what a ``scan`` takes, by its parameters."""
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    constants, carried, _ = params["ft_in"].unpack()  # since jax 0.11
    return len(constants), len(carried)
