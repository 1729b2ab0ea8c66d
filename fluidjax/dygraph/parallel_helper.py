"""What DataParallel asks about the processes it is one of."""

from __future__ import annotations


def _is_data_parallel_mode() -> bool:
    """Whether several processes train together: here one does."""
    return False
