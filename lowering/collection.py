"""Garbage, and when not to look for it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Let Python's collector rest while much is made that will live long.

    It would look through all that is there again and again, and find nothing: half of the time of an import, or of
    reading a large program.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
