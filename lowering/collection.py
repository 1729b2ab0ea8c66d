"""Pausing the garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Pause Python's collector while many long-lived objects are created.

    It would traverse everything again and again without finding any garbage: half of the time of an import, or of
    reading a large program.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
