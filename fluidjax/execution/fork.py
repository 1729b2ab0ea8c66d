"""Steps in a process forked from one that ran some: XLA's threads are missing there, so they would wait forever."""

from __future__ import annotations

import os

from jax._src.xla_bridge import backends_are_initialized

_forked = False


def _note() -> None:
    global _forked
    _forked = backends_are_initialized()


def check() -> None:
    """RuntimeError in a process that inherited a running XLA by ``os.fork``."""
    if _forked:
        raise RuntimeError(
            f"Executor.run: process {os.getpid()} was forked from one in which fluidjax had computed already, and XLA's"
            " threads did not come along: a step would wait for them forever.\n"
            "  expected: a process of its own, received: a fork\n"
            "  what to do: start it with multiprocessing.get_context('spawn'), or fork before the first executor"
        )


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note)
