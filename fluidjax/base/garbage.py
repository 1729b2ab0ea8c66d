"""Suspending garbage collection while many long-lived objects are created."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def no_collections() -> Iterator[None]:
    """Context manager: suspend garbage collection, for milliseconds of work whose results are all kept.

    A backward pass creates so many objects that Python would traverse all existing ones, including the 120,000 left
    by imports, which takes as long as the pass itself.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
