"""Feed more rows than the user did: some faults show only after the first few."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluidjax.base.values import LoDTensor
from fluidjax.framework import Program

LEAST = 9


def enlarged(feed: dict[str, Any], program: Program) -> dict[str, Any] | None:
    """The feed with its rows, or sequences, repeated until there are ``LEAST`` of them; None if there already are.

    Each repetition of floating-point numbers is slightly smaller than the previous one, so that no two rows are equal.
    Data of a declared size is unchanged.
    """
    block = program.global_block()
    batched = [n for n, v in feed.items() if _is_batched(v, block.vars.get(n))]
    counts = [np.shape(np.asarray(feed[n]))[0] for n in batched]
    if not counts or min(counts) == 0 or min(counts) >= LEAST:
        return None
    times = -(-LEAST // min(counts))
    return {n: _repeated(v, times) if n in batched else v for n, v in feed.items()}


def _is_batched(value: Any, var: Any) -> bool:
    if isinstance(value, LoDTensor) and value.lod():
        return True
    return var is not None and len(var.shape) > 0 and var.shape[0] < 0 and np.ndim(np.asarray(value)) > 0


def _repeated(value: Any, times: int) -> Any:
    data = np.asarray(value)
    parts = [_smaller(data, i) for i in range(times)]
    whole = np.concatenate(parts)
    if not isinstance(value, LoDTensor) or not value.lod():
        return whole
    again = LoDTensor()
    again._set_value(whole, [_levels(level, times) for level in value.lod()])
    return again


def _smaller(data: np.ndarray, turn: int) -> np.ndarray:
    if data.dtype.kind != "f" or np.array_equal(data, np.round(data)):
        return data
    return (data * (1 - 0.013 * turn)).astype(data.dtype)


def _levels(offsets: Any, times: int) -> list[int]:
    lengths = np.tile(np.diff(np.asarray(offsets)), times)
    return [0, *np.cumsum(lengths).tolist()]
