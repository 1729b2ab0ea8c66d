"""What a person at a terminal is told who waits for a compilation."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator

_PATIENCE = 2.0  # seconds


@contextlib.contextmanager
def compiling(ops: int) -> Iterator[None]:
    """Say on the terminal that ``ops`` ops are compiled, where it takes longer than two seconds; a log stays quiet."""
    if not sys.stderr.isatty():
        yield
        return
    started, said = time.perf_counter(), threading.Event()

    def say() -> None:
        said.set()
        print(f"Compiling program ({ops} ops) ...", end="", file=sys.stderr, flush=True)

    timer = threading.Timer(_PATIENCE, say)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        if said.is_set():
            print(f" {time.perf_counter() - started:.1f} s", file=sys.stderr, flush=True)
