"""Loaders fed by a Python generator, for static programs."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from fluidjax.base.containers import LoDTensorArray
from fluidjax.base.enums import to_numpy_dtype
from fluidjax.base.errors import EOFException
from fluidjax.base.places import CPUPlace, Place
from fluidjax.base.values import LoDTensor
from fluidjax.data_feeder import BatchedTensorProvider, DataFeeder
from fluidjax.framework import Program, Variable
from fluidjax.readers.batching import batch
from fluidjax.readers.loader import DataLoaderBase, insist, reader_failure
from fluidjax.readers.prefetch import Prefetcher
from fluidjax.readers.reader_ops import before_read, create_program_reader, drops_last, readers_of
from fluidjax.readers.tensor_queue import TensorQueue

Reader = Callable[[], Iterable[Any]]
Places = Place | Sequence[Place]
Batch = list[Any]  # LoDTensors, one for each variable


def _array(field: Any) -> np.ndarray:
    try:
        array = np.asarray(field)
    except ValueError:
        array = np.asarray(None)
    if array.dtype == object:
        raise TypeError(
            "Faild to convert input data to a regular ndarray: expected nested lists of equal lengths, received"
            f" {field!r:.60}. Yield arrays, or LoDTensors made by fluid.create_lod_tensor"
        )
    return array


def to_tensor(value: Any, var: Variable) -> Any:
    """Convert a value yielded for ``var`` to a LoDTensor; tensors are returned unchanged."""
    if isinstance(value, (LoDTensor, LoDTensorArray)):
        return value
    array = _array(value)
    if array.dtype.kind not in "biuf":
        array = np.asarray(value, to_numpy_dtype(var.dtype))
    tensor = LoDTensor()
    tensor.set(array, CPUPlace())
    return tensor


def place_list(places: Places) -> list[Place]:
    """One or more devices, as a list."""
    return list(places) if isinstance(places, (list, tuple)) else [places]  # type: ignore[list-item]


class GeneratorLoader(DataLoaderBase):
    """A loader fed by a Python generator; created by ``DataLoader.from_generator``.

    Args:
        feed_list: the variables, in the order of the generator's fields.
        capacity: number of batches to prefetch.
        use_double_buffer: accepted for compatibility with Fluid; batches are always prefetched.
        iterable: yield feeds by iteration; otherwise ``start()``, run until EOFException, ``reset()``.
        return_list: yield lists of tensors instead of dicts by name.
        drop_last: drop trailing batches too few for all devices.
    """

    def __init__(
        self,
        feed_list: Sequence[Variable] | None = None,
        capacity: int | None = None,
        use_double_buffer: bool = True,
        iterable: bool = True,
        return_list: bool = False,
        drop_last: bool = True,
    ) -> None:
        super().__init__()
        if feed_list is None:
            raise ValueError("Feed list must be given under static mode: received None; pass feed_list=[variable, ...]")
        if not capacity:
            raise ValueError(f"Please give value to capacity: received {capacity}; pass a number of batches, 1 or more")
        self._feed_list = list(feed_list)
        self._capacity = capacity
        self._use_double_buffer = use_double_buffer
        self._iterable = iterable
        self._return_list = return_list
        self._drop_last = drop_last
        self._source: Callable[[], Iterable[Batch]] | None = None
        self._worker: Prefetcher | None = None
        self._queue = TensorQueue(capacity)
        if not iterable:
            create_program_reader(self, self._feed_list)

    @property
    def iterable(self) -> bool:
        """Whether the loader is iterable."""
        return self._iterable

    @property
    def queue(self) -> TensorQueue:
        """The queue between the reading thread and the running one; empty before the first pass."""
        return self._queue

    @property
    def thread(self) -> threading.Thread | None:
        """The thread that reads; None outside a pass."""
        return None if self._worker is None else self._worker.thread

    # What to read.

    def set_sample_generator(
        self, reader: Reader, batch_size: int, drop_last: bool = True, places: Places | None = None
    ) -> GeneratorLoader:
        """Read single samples, tuples with one value per variable, and batch them by ``batch_size``."""
        if batch_size <= 0:
            raise AssertionError(f"batch_size must be larger than 0, received {batch_size}; pass 1 or more")
        if any(var.lod_level for var in self._feed_list):
            return self.set_sample_list_generator(batch(reader, batch_size, drop_last), places)
        provider = BatchedTensorProvider(self._feed_list, CPUPlace(), batch_size, reader, drop_last)
        return self.set_batch_generator(provider, places)

    def set_sample_list_generator(self, reader: Reader, places: Places | None = None) -> GeneratorLoader:
        """Read lists of samples, as produced by ``paddle.batch``."""
        feed_list = self._feed_list
        feeder = DataFeeder(feed_list, CPUPlace())

        def tensors() -> Iterator[Batch]:
            for samples in reader():
                feed = feeder.feed(samples)
                yield [feed[var.name] for var in feed_list]

        return self.set_batch_generator(tensors, places)

    def set_batch_generator(self, reader: Reader, places: Places | None = None) -> GeneratorLoader:
        """Read batches: a list or tuple with one array or LoDTensor per variable."""

        feed_list = self._feed_list  # not the loader itself: the thread that reads must not keep it alive

        def tensors() -> Iterator[Batch]:
            for values in reader():
                yield _checked(values, feed_list)

        if self._iterable:
            insist(places is not None, "Places cannot be None when DataLoader is iterable", "pass places=")
            self._places = place_list(places)  # type: ignore[arg-type]
        self._source = tensors
        return self

    # Iterating.

    def __iter__(self) -> GeneratorLoader:
        insist(self._iterable, "DataLoader is not iterable", "call start() and run the program, or pass iterable=True")
        self._begin()
        return self

    def __next__(self) -> Any:
        insist(self._worker is not None, "DataLoader is not being iterated", "call iter() on it first")
        assert self._worker is not None and self._places is not None
        group = list(itertools.islice(self._worker, len(self._places)))
        if not group or (len(group) < len(self._places) and self._drop_last):
            self._end()
            raise StopIteration
        if self._return_list:
            return group
        return [dict(zip([var.name for var in self._feed_list], tensors, strict=True)) for tensors in group]

    # Feeding a program.

    def start(self) -> None:
        """Start a pass; runs of the program then read from it."""
        insist(not self._iterable, "start() cannot be called when DataLoader is iterable", "loop over the loader")
        self._begin()

    def reset(self) -> None:
        """End a pass, after EOFException or earlier."""
        insist(not self._iterable, "reset() cannot be called when DataLoader is iterable", "loop over the loader")
        self._end()

    def _reset(self) -> None:
        """End a pass, for either kind of loader."""
        self._end()

    @staticmethod
    def _check_input_array(item: Any) -> np.ndarray:
        """Convert one field of a batch to an array. Raises TypeError for lists of different lengths."""
        return _array(item)

    def next_batch(self) -> Batch:
        """The next batch of a pass. RuntimeError where none was started, EOFException at its end."""
        if self._worker is None:
            raise RuntimeError(
                "the program reads from a loader that was not started: expected loader.start() before Executor.run; "
                "call it at the beginning of each pass (and reset() after EOFException)"
            )
        try:
            return next(self._worker)
        except StopIteration:
            raise EOFException(
                "There is no next data: the pass over the loader is complete; catch fluid.core.EOFException and call "
                "loader.reset(), then start() for another pass"
            ) from None

    def _begin(self) -> None:
        insist(
            self._source is not None,
            "Data source of DataLoader has not set yet",
            "call set_sample_generator, set_sample_list_generator or set_batch_generator",
        )
        self._end()
        assert self._source is not None
        self._worker = Prefetcher(self._source, self._capacity, reader_failure)
        self._queue.follow(self._worker.channel)

    def _end(self) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None


def loader_without_ops(feed_list: Sequence[Variable], capacity: int, queue: TensorQueue) -> GeneratorLoader:
    """A loader to start and reset, for a program that already has its reader ops and a ``queue`` to report by."""
    loader = GeneratorLoader(feed_list, capacity)
    loader._queue = queue
    loader._iterable = False
    return loader


def _checked(values: Any, feed_list: Sequence[Variable]) -> Batch:
    if isinstance(values, dict):
        values = [values[var.name] for var in feed_list]
    if not isinstance(values, (list, tuple)) or len(values) != len(feed_list):
        received = f"{len(values)} values" if isinstance(values, (list, tuple)) else type(values).__name__
        raise ValueError(
            f"the loader's generator must yield one value for each of {[v.name for v in feed_list]}, but "
            f"received {received}; yield a tuple of {len(feed_list)}"
        )
    return [to_tensor(value, var) for value, var in zip(values, feed_list, strict=True)]


def next_feed(
    program: Program, feed: dict[str, Any], run: Callable[[Program, dict[str, Any]], Any] | None = None
) -> dict[str, Any]:
    """The feed of a run: the user's, merged with the next batch of each reader in the program.

    Raises EOFException when a reader is exhausted. An executor that runs op by op has then done all that stands in
    front of the ``read`` op: ``run`` is called with these ops, as a program, and its feed. None: reading comes first.
    """
    readers = readers_of(program)
    if not readers:
        return feed
    joined = dict(feed)
    for count, (loader, names) in enumerate(readers):
        if not all(name in feed for name in names):
            try:
                batch = loader.next_batch()
            except Exception:
                before = before_read(program, count) if run is not None else None
                if run is not None and before is not None:
                    run(before, {name: value for name, value in joined.items() if before.global_block().has_var(name)})
                raise
            joined.update(zip(names, batch, strict=True))
    return joined


def next_feeds(program: Program, feeds: Sequence[dict[str, Any]], *, idle: bool) -> list[dict[str, Any]]:
    """``next_feed`` for each device.

    At the end of a pass there may be fewer, if devices may be ``idle`` and the last batches are not dropped.
    """
    found: list[dict[str, Any]] = []
    for feed in feeds:
        try:
            found.append(next_feed(program, feed))
        except EOFException:
            if not found or not idle or drops_last(program):
                raise
            break
    return found
