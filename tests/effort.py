"""Work counted in calls, which a slow machine, its load and its garbage collector do not change."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def at_most_calls(limit: int, what: str) -> Iterator[None]:
    """Fails as soon as the block inside has made more than ``limit`` calls, of Python's and of C's functions.

    So a block that would take for ever fails within seconds, whatever it does with exceptions.
    """
    calls = 0

    def called(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")
        if calls > limit:
            sys.setprofile(None)
            raise AssertionError(f"more than {limit:,} calls to {what}")

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        yield
    finally:
        sys.setprofile(before)
    assert calls <= limit, f"more than {limit:,} calls to {what}"
