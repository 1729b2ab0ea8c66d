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


_PER_OP, _MOST = 8, 50_000  # objects
_young = {gc.get_threshold()[0]}  # how many new objects Python itself lets pass, and what was set here


def wait_for(ops: int) -> None:
    """Have Python collect garbage only after more new objects than a step of so many eager ops makes.

    Nearly all of them end with the step, without being collected. But while they are there, collections would find them
    alive and count them as old ones, and so traverse everything that exists every few steps: 14 of 70 ms of a step
    of 1,700 ops. A script that has set a threshold of its own keeps it.
    """
    young, *older = gc.get_threshold()
    wanted = min(ops * _PER_OP, _MOST)
    if young in _young and wanted > young:
        _young.add(wanted)
        gc.set_threshold(wanted, *older)
