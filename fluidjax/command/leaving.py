"""Ctrl-C during a compilation, which XLA does not interrupt: the first is acknowledged, the second leaves at once."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading

from lowering.engine.interrupts import deferral

_WORDS = "fluidjax: this ends when the compilation has ended; press Ctrl-C again to leave at once\n"


def watch() -> None:
    """Watch for Ctrl-C while Python's signal handlers are deferred, in a thread: the main one is in XLA meanwhile."""
    reads, writes = socket.socketpair()
    writes.setblocking(False)
    signal.set_wakeup_fd(writes.fileno(), warn_on_full_buffer=False)
    if hasattr(os, "register_at_fork"):
        # The terminal sends Ctrl-C to children as well, and theirs must not count here.
        os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))
    threading.Thread(target=_watch, args=(reads, writes), name="fluidjax-leaving", daemon=True).start()


def _watch(reads: socket.socket, writes: socket.socket) -> None:
    """Read the numbers of signals as they arrive; ``writes`` is held so that it stays open."""
    told: list[int] | None = None
    while numbers := reads.recv(16):
        for number in numbers:
            found = deferral() if number == signal.SIGINT else None
            if found is None:
                continue
            if found is told:
                os._exit(128 + signal.SIGINT)
            told = found
            sys.stderr.write(_WORDS)
            sys.stderr.flush()
