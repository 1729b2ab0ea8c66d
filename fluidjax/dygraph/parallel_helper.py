"""Data-parallel mode, as queried by DataParallel."""

from __future__ import annotations


def _is_data_parallel_mode() -> bool:
    """Whether several processes train together; always False here."""
    return False
