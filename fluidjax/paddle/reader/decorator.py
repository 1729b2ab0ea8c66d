"""Reader decorators: functions from readers to readers.

A *reader* is a function without arguments that returns an iterable of samples; each call starts a new pass.
Nothing here depends on tensors: samples may be any Python objects. What is no reader raises TypeError.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from fluidjax.paddle.reader.processes import multiprocess_reader
from fluidjax.readers.batching import a_reader
from fluidjax.readers.prefetch import Channel, ChannelClosed, prefetched

__all__ = [
    "cache",
    "map_readers",
    "buffered",
    "compose",
    "chain",
    "shuffle",
    "ComposeNotAligned",
    "firstn",
    "xmap_readers",
    "multiprocess_reader",
]

Reader = Callable[[], Iterable[Any]]


class ComposeNotAligned(ValueError):
    """The readers given to ``compose`` do not have the same number of samples."""


def cache(reader: Reader) -> Reader:
    """A reader over the samples of ``reader``, which is read once, immediately, and kept in memory."""
    a_reader(reader, "cache")
    samples = tuple(reader())

    def cached() -> Iterator[Any]:
        yield from samples

    return cached


def map_readers(func: Callable[..., Any], *readers: Reader) -> Reader:
    """A reader of ``func(a, b, ...)`` for samples a, b, ... of the readers; ends with the shortest."""

    for reader in readers:
        a_reader(reader, "map_readers")

    def mapped() -> Iterator[Any]:
        return map(func, *(reader() for reader in readers))

    return mapped


def shuffle(reader: Reader, buf_size: int) -> Reader:
    """A reader that shuffles consecutive blocks of ``buf_size`` samples, using Python's global ``random``.

    Examples:
        >>> reader = paddle.reader.shuffle(lambda: iter(range(5)), buf_size=5)
        >>> sorted(reader())
        [0, 1, 2, 3, 4]
    """

    a_reader(reader, "shuffle")

    def shuffled() -> Iterator[Any]:
        samples = iter(reader())
        while chunk := list(itertools.islice(samples, max(buf_size, 1))):
            random.shuffle(chunk)
            yield from chunk

    return shuffled


def chain(*readers: Reader) -> Reader:
    """A reader over all samples of the first reader, then of the second, and so on."""

    for reader in readers:
        a_reader(reader, "chain")

    def chained() -> Iterator[Any]:
        for reader in readers:
            yield from reader()

    return chained


def compose(*readers: Reader, **kwargs: Any) -> Reader:
    """A reader of tuples that combine one sample of each reader; samples that are tuples are flattened.

    Args:
        readers: readers of samples or of tuples.
        check_alignment: raise ComposeNotAligned if the readers do not end together (default True);
            otherwise end silently with the shortest.
    """
    check_alignment = kwargs.pop("check_alignment", True)
    if kwargs:
        raise TypeError(f"compose() takes only check_alignment by name; got {sorted(kwargs)}; remove them")

    for reader in readers:
        a_reader(reader, "compose")

    def flat(samples: tuple[Any, ...]) -> tuple[Any, ...]:
        return sum((s if isinstance(s, tuple) else (s,) for s in samples), ())

    def composed() -> Iterator[Any]:
        missing = object()
        for samples in itertools.zip_longest(*(reader() for reader in readers), fillvalue=missing):
            ended = [i for i, sample in enumerate(samples) if sample is missing]
            if not ended:
                yield flat(samples)
            elif check_alignment:
                raise ComposeNotAligned(
                    f"outputs of readers are not aligned: expected all {len(readers)} readers to end together, but "
                    f"number {ended} ended first; give readers of one length, or check_alignment=False"
                )
            else:
                return

    return composed


def buffered(reader: Reader, size: int) -> Reader:
    """A reader that prefetches up to ``size`` samples in a thread; errors of ``reader`` are raised in order."""

    a_reader(reader, "buffered")

    def ahead() -> Iterator[Any]:
        return prefetched(reader, size)

    return ahead


def firstn(reader: Reader, n: int) -> Reader:
    """A reader over at most the first ``n`` samples."""

    a_reader(reader, "firstn")

    def first() -> Iterator[Any]:
        return itertools.islice(reader(), n)

    return first


class XmapEndSignal:
    """Marks the end of the samples between the threads of ``xmap_readers``."""


class _Failed:
    """An error on its way from a thread of ``xmap_readers`` to the consumer."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


def xmap_readers(
    mapper: Callable[[Any], Any], reader: Reader, process_num: int, buffer_size: int, order: bool = False
) -> Reader:
    """A reader of ``mapper(sample)``, computed by ``process_num`` threads.

    Args:
        mapper: a function of one sample.
        reader: supplies the samples.
        process_num: number of threads.
        buffer_size: maximum number of samples queued before the threads, and of results after them.
        order: preserve the order of ``reader``; otherwise results are yielded as they become ready.

    An error in ``reader`` or ``mapper`` is raised in the consumer.
    """

    a_reader(reader, "xmap_readers")

    def xmapped() -> Iterator[Any]:
        todo, done = Channel(buffer_size), Channel(buffer_size)
        _start(_feed, reader, todo, done, process_num)
        for _ in range(process_num):
            _start(_map, mapper, todo, done)
        results = _results(done, process_num)
        try:
            yield from _in_order(results) if order else (value for _, value in results)
        finally:
            todo.close()
            done.close()

    return xmapped


def _start(target: Callable[..., None], *args: Any) -> None:
    threading.Thread(target=target, args=args, daemon=True, name="fluidjax-xmap").start()


def _feed(reader: Reader, todo: Channel, done: Channel, workers: int) -> None:
    try:
        for item in enumerate(reader()):
            if not todo.put(item):
                return
    except BaseException as error:  # handed over to the thread that reads
        done.put(_Failed(error))
    for _ in range(workers):
        todo.put(XmapEndSignal())


def _map(mapper: Callable[[Any], Any], todo: Channel, done: Channel) -> None:
    try:
        while not isinstance(item := todo.get(), XmapEndSignal):
            done.put((item[0], mapper(item[1])))
    except ChannelClosed:  # the consumer has gone
        return
    except BaseException as error:  # handed over to the thread that reads
        done.put(_Failed(error))
    done.put(XmapEndSignal())


def _results(done: Channel, workers: int) -> Iterator[tuple[int, Any]]:
    while workers:
        item = done.get()
        if isinstance(item, _Failed):
            raise item.error
        if isinstance(item, XmapEndSignal):
            workers -= 1
        else:
            yield item


def _in_order(results: Iterator[tuple[int, Any]]) -> Iterator[Any]:
    waiting: dict[int, Any] = {}
    turn = 0
    for index, value in results:
        waiting[index] = value
        while turn in waiting:
            yield waiting.pop(turn)
            turn += 1
