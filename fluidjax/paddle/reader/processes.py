"""Readers in separate processes."""

from __future__ import annotations

import multiprocessing
import queue
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from fluidjax.base.errors import EnforceNotMet

Reader = Callable[[], Iterable[Any]]

POLL_SECONDS = 1.0


class ReaderProcessError(EnforceNotMet, ValueError):
    """A reader failed, or its process died, inside ``multiprocess_reader``.

    Both kinds: Fluid 1.8.5 says ValueError to who reads the samples, EnforceNotMet to who trains on them.
    """


def multiprocess_reader(readers: Sequence[Reader], use_pipe: bool = True, queue_size: int = 1000) -> Reader:
    """A reader over the samples of several readers, each running in its own process.

    Args:
        readers: at least one reader; samples are pickled for transfer and must not be None.
        use_pipe: accepted for compatibility with Fluid; both settings yield the same samples.
        queue_size: maximum number of queued samples.

    Samples of different readers arrive in any order. Since readers are closures, processes are forked and must not
    run operators themselves. Raises ReaderProcessError with the traceback of the reader that failed.
    """
    if not isinstance(readers, (list, tuple)) or not readers:
        raise AssertionError(
            f"multiprocess_reader expected a list of at least one reader, received {readers!r}; pass [reader, ...]"
        )

    def read() -> Iterator[Any]:
        context = multiprocessing.get_context("fork")
        samples = context.Queue(queue_size)
        workers = [context.Process(target=_work, args=(reader, samples), daemon=True) for reader in readers]
        _fork(workers)
        try:
            yield from _collect(samples, workers)
        finally:
            for worker in workers:
                worker.terminate()
                worker.join()
            samples.close()
            samples.cancel_join_thread()

    return read


def _fork(workers: Sequence[Any]) -> None:
    """Start the workers. Python and JAX warn about forking with threads; the workers only run plain readers."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r".*fork\(\)", category=RuntimeWarning)
        warnings.filterwarnings("ignore", message=r".*fork\(\)", category=DeprecationWarning)
        for worker in workers:
            worker.start()


def _work(reader: Reader, samples: Any) -> None:
    try:
        for sample in reader():
            if sample is None:
                raise ValueError("sample has None! A reader's samples must be values")
            samples.put(("sample", sample))
        samples.put(("end", None))
    except BaseException:  # crosses to the consumer as text
        samples.put(("error", traceback.format_exc()))


def _collect(samples: Any, workers: Sequence[Any]) -> Iterator[Any]:
    running = len(workers)
    while running:
        try:
            kind, value = samples.get(timeout=POLL_SECONDS)
        except queue.Empty:
            _check_alive(workers)
            continue
        if kind == "error":
            raise ReaderProcessError(f"multiprocess reader raises an exception; mend the reader that failed:\n{value}")
        if kind == "sample":
            yield value
        else:
            running -= 1


def _check_alive(workers: Sequence[Any]) -> None:
    dead = [worker for worker in workers if worker.exitcode not in (None, 0)]
    if dead:
        raise ReaderProcessError(
            f"the process of a reader died: expected exit code 0, received {dead[0].exitcode} (negative: a signal); "
            "look for memory running out or a crash in the code it calls"
        )
