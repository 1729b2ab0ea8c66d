"""XLA's thread that emits kernels gives way to those that compile them: what waits between them takes memory.

In jaxlib 0.10 one thread of XLA's CPU client, which does nothing else, optimises a program and emits its kernels;
others compile them. Each kernel that waits holds an MLIR context of its own, more than a megabyte, and XLA keeps all
contexts until the whole program is compiled; kernels that find one before them compiled take over its context. Emitting
is the faster part: where both sides get the same share of a processor, more than half of the kernels wait. From jaxlib
0.11 on each of XLA's threads emits and compiles: there is none to set back.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import jaxlib.version

# A tenth of the others' share of a processor that both want, as long as the others want it.
_LOWER = 10
# Nanoseconds of work that tell a thread which works from one that woke up, and before which no kernel is compiled.
_ENOUGH, _EARLY = 3_000_000, 20_000_000
# Seconds from one look at the threads to the next, at first; later that part of the time that has passed. Where threads
# are not told apart, they would be looked at so often for as long as the first program compiles.
_LOOK, _PART = 0.005, 0.1
_OTHERS = "llvm-worker", "tf_"
_ONE_EMITS = jaxlib.version.__version_info__ < (0, 11)

_found = threading.Event()


@contextlib.contextmanager
def emitting_last() -> Iterator[None]:
    """Within it, a program is compiled for the CPU; the first time, the thread that emits is found and set back.

    XLA does not name the thread. It is the one that works first, while the caller waits. Where others work too, or the
    system does not say what threads do, nothing changes.
    """
    if not _ONE_EMITS or _found.is_set() or sys.platform != "linux":
        yield
        return
    before, done = _worked(), threading.Event()
    watcher = threading.Thread(target=_watch, args=(before, done), name="fluidjax-watch", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def _watch(before: dict[int, int], done: threading.Event) -> None:
    emitting, over, passed = None, False, 0.0
    while not over and not _found.is_set():
        pause = max(_LOOK, _PART * passed)
        over, passed = done.wait(pause), passed + pause
        work = {thread: spent - before.get(thread, 0) for thread, spent in _worked().items()}
        made = any(work[thread] >= _ENOUGH for thread in work.keys() - before.keys())
        emitting = emitting or _first({t: w for t, w in work.items() if t in before}, late=made)
        # A thread inherits the priority of the one that makes it: the first compilation makes those that compile. That
        # may have been one of jax's own, which nobody watched.
        if emitting and (over or any(w >= _ENOUGH for thread, w in work.items() if thread != emitting)):
            return _set_back(emitting)


def _first(work: dict[int, int], *, late: bool) -> int | None:
    """The one thread that works; None where that is not clear: after the first moments others may just compile."""
    thread, total = max(work, key=work.__getitem__, default=None), sum(work.values())
    if thread is None or work[thread] < _ENOUGH or 5 * work[thread] < 4 * total:
        return None
    return thread if late or total <= _EARLY else None


def _set_back(thread: int) -> None:
    with contextlib.suppress(OSError):  # it may have ended
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, 0) + _LOWER)
        _found.set()


def _worked() -> dict[int, int]:
    """How long each thread has worked, in nanoseconds, where the system says it; without those known to do other work:
    Python's, and those that XLA and LLVM name.
    """
    own = {str(thread.native_id) for thread in threading.enumerate()}
    found = {}
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc/self/task"):
            if name not in own and not _read(name, "comm").startswith(_OTHERS):
                found[int(name)] = int((_read(name, "schedstat") or "0").split()[0])
    return found


def _read(thread: str, file: str) -> str:
    try:
        return Path(f"/proc/self/task/{thread}/{file}").read_text()
    except OSError:
        return ""
