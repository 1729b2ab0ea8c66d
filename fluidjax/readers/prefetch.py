"""A bounded queue filled by a thread, which readers and loaders use for prefetching."""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

POLL_SECONDS = 0.05  # how soon a producer notices that nobody reads any more


class ChannelClosed(Exception):
    """The other end of the channel is closed."""


class _End:
    """The last entry of a queue, with the error that ended it, if any."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


class Channel:
    """A queue of ``capacity`` items between threads, which either side can close."""

    def __init__(self, capacity: int) -> None:
        self._queue: queue.Queue[Any] = queue.Queue(max(int(capacity), 1))
        self._closed = threading.Event()

    def put(self, item: Any) -> bool:
        """Add an item, waiting for space; returns False once the channel is closed."""
        while not self._closed.is_set():
            try:
                self._queue.put(item, timeout=POLL_SECONDS)
            except queue.Full:
                continue
            return True
        return False

    def get(self) -> Any:
        """The next item, waiting for one; raises ChannelClosed once the channel is closed and empty."""
        while True:
            try:
                return self._queue.get(timeout=POLL_SECONDS)
            except queue.Empty:
                if self._closed.is_set():
                    raise ChannelClosed from None

    def close(self) -> None:
        """Close without waiting: ``put`` then returns False, and ``get`` raises once the queue is empty."""
        self._closed.set()

    def qsize(self) -> int:
        """The number of items queued; the mark of a source's end is none."""
        with self._queue.mutex:
            return sum(not isinstance(item, _End) for item in self._queue.queue)

    @property
    def closed(self) -> bool:
        """Whether either side has closed the channel; items may still be queued."""
        return self._closed.is_set()


class Prefetcher:
    """Iterates over ``source()`` in a thread, up to ``capacity`` items ahead.

    An error in the source is raised in the consumer, after the preceding items, as ``as_raised`` makes it. ``close``
    stops the ``thread``, and so does dropping the prefetcher, to which thread and ``source`` must hold no reference.
    """

    def __init__(
        self,
        source: Callable[[], Iterable[Any]],
        capacity: int,
        as_raised: Callable[[BaseException], BaseException] = lambda error: error,
    ) -> None:
        self.channel = Channel(capacity)
        self._as_raised = as_raised
        self._over = False
        self.thread = threading.Thread(target=_work, args=(source, self.channel), daemon=True, name="fluidjax-prefetch")
        weakref.finalize(self, self.channel.close)
        self.thread.start()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._over:
            raise StopIteration
        try:
            item = self.channel.get()
        except ChannelClosed:
            item = _End()
        if not isinstance(item, _End):
            return item
        self._over = True
        self.close()
        raise StopIteration if item.error is None else self._as_raised(item.error)

    def close(self) -> None:
        """Stop the thread and wait for it to exit (a source that blocks forever is left to the daemon thread)."""
        self.channel.close()
        if self.thread is not threading.current_thread():
            self.thread.join(timeout=5)


def _work(source: Callable[[], Iterable[Any]], channel: Channel) -> None:
    try:
        for item in source():
            if not channel.put(item):
                return
    except BaseException as error:  # handed over to the thread that reads
        channel.put(_End(error))
    else:
        channel.put(_End())


def prefetched(source: Callable[[], Iterable[Any]], capacity: int) -> Iterator[Any]:
    """A generator over ``source()`` that prefetches until it is closed or dropped."""
    worker = Prefetcher(source, capacity)
    try:
        yield from worker
    finally:
        worker.close()


class Dealt:
    """An iterator that several threads take from: each item goes to one of them."""

    def __init__(self, items: Iterable[Any]) -> None:
        self._items = iter(items)
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        with self._lock:
            return next(self._items)


def by_workers(step: Callable[[Any], Any], shares: Iterable[Iterable[Any]]) -> Iterator[Any]:
    """What ``step`` makes of all items, as they come: a thread for each share takes one item after another.

    The first error in one of the threads ends them all, and is raised. So does closing the generator end them.
    """
    shares = list(shares)
    done = Channel(2 * len(shares))
    threads = [
        threading.Thread(target=_serve, args=(step, share, done), daemon=True, name=f"fluidjax-worker-{at}")
        for at, share in enumerate(shares)
    ]
    for thread in threads:
        thread.start()
    try:
        working = len(threads)
        while working:
            made = done.get()
            if not isinstance(made, _End):
                yield made
            elif made.error is not None:
                raise made.error
            else:
                working -= 1
    finally:
        done.close()
        for thread in threads:
            thread.join()


def _serve(step: Callable[[Any], Any], share: Iterable[Any], done: Channel) -> None:
    try:
        for item in share:
            if done.closed or not done.put(step(item)):
                return
    except BaseException as error:  # handed over to the thread that waits
        done.put(_End(error))
    else:
        done.put(_End())
