"""Progress messages for a person who waits at a terminal."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator

_PATIENCE = 2.0  # seconds
_speaking = threading.Lock()  # held while a message is shown: work inside that work shows none of its own


def compiling(ops: int) -> contextlib.AbstractContextManager[None]:
    """Say on the terminal that ``ops`` ops are being compiled, if it takes long."""
    return waiting(f"Compiling program ({ops} ops)")


@contextlib.contextmanager
def waiting(what: str) -> Iterator[None]:
    """Say on the terminal what is being done if it takes longer than two seconds; a log stays quiet."""
    if not sys.stderr.isatty() or not _speaking.acquire(blocking=False):
        yield
        return
    started, said = time.perf_counter(), threading.Event()

    def say() -> None:
        said.set()
        print(f"{what} ...", end="", file=sys.stderr, flush=True)

    timer = threading.Timer(_PATIENCE, say)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        _speaking.release()
        if said.is_set():
            print(f" {time.perf_counter() - started:.1f} s", file=sys.stderr, flush=True)
