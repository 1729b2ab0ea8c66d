"""What the compiling thread is given.

What belongs to the sequence that ran last comes first, and at the end what is there and is compiled better.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple

import jax

from fluidjax.execution.executables import background
from fluidjax.execution.executables.allocator import give_back_freed_memory
from lowering.engine.x64 import with_device
from lowering.machine import processors

BETTER = "better"  # the kind of a task that nothing waits for


def one_processor() -> bool:
    """Whether the thread and what runs beside it have one processor between them."""
    return processors() == 1


def _tell(error: BaseException) -> None:
    """Warn, once for errors of one text: whoever trains on would not know why it is slow."""
    if background.ending():
        return
    with contextlib.suppress(RuntimeWarning):  # a thread has nobody to raise it to
        warnings.warn(
            f"ops that repeat could not be compiled as one block: {type(error).__name__}: {error}\n"
            "  expected: a block, beside the run; received: this error. The ops go on one by one, more slowly\n"
            "  to do: report it with the versions of jax and jaxlib; FLAGS_eager_blocks=0 compiles no blocks",
            RuntimeWarning,
            stacklevel=2,
        )


class _Job(NamedTuple):
    work: Callable[[], None]
    device: Any
    done: Future[None]


class Jobs:
    """Tasks for sequences, at most one of a kind for each that has not begun: a later one takes its place.

    There is no lock, which a process that forks meanwhile could not open: one thread adds, and one takes.
    """

    def __init__(self) -> None:
        self._waiting: dict[Any, _Job] = {}
        self._open: list[Future[None]] = []

    def add(self, entry: Any, kind: str, work: Callable[[], None]) -> Future[None]:
        """Have work done for an entry, whose ``last`` says when its sequence ran; returns its outcome."""
        job = _Job(work, jax.config.jax_default_device, Future())  # type: ignore[attr-defined]
        replaced = self._waiting.pop((entry, kind), None)
        if replaced is not None:
            replaced.done.set_result(None)
        self._open = [done for done in self._open if not done.done() or done.exception() is not None]
        self._open.append(job.done)
        self._waiting[entry, kind] = job
        background.submit(self._work)
        return job.done

    def wait(self) -> None:
        """Wait for all of it, and raise the first error."""
        open_, self._open = self._open, []
        for done in open_:
            done.result()

    def _work(self) -> None:
        job = self._taken()
        if job is None:
            return
        try:
            with_device(job.device, job.work)
        except BaseException as error:
            job.done.set_exception(error)
            _tell(error)
        else:
            job.done.set_result(None)
        if not self._waiting:
            give_back_freed_memory()

    def _taken(self) -> _Job | None:
        """The job to do next; None if each was replaced."""
        while keys := [*self._waiting]:
            job = self._waiting.pop(max(keys, key=lambda key: (key[1] != BETTER, key[0].last)), None)
            if job is not None:
                return job
        return None
