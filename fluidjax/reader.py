"""Loaders: batches for a program, read ahead by a thread.

Iterable ones give feeds to loop over. The others belong to a program: they put a ``read`` op at its beginning, and
each ``Executor.run`` takes the next batch, until ``fluid.core.EOFException``.
"""

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
from fluidjax.dataloader import BatchSampler, Dataset
from fluidjax.framework import Program, Variable, in_dygraph_mode
from fluidjax.paddle.batch import batch
from fluidjax.paddle.reader import xmap_readers
from fluidjax.readers.eager import DygraphGeneratorLoader, to_variables
from fluidjax.readers.loader import DataLoaderBase, insist
from fluidjax.readers.prefetch import Prefetcher
from fluidjax.readers.reader_ops import create_program_reader, readers_of

__all__ = ["PyReader", "DataLoader"]

KEEP_DATA_LOADER_ORDER = True
QUEUE_GET_TIMEOUT = 60

Reader = Callable[[], Iterable[Any]]
Places = Place | Sequence[Place]
Batch = list[Any]  # LoDTensors, one for each variable


def keep_data_loader_order(*args: bool) -> bool | None:
    """Get (without an argument) or set whether batches come in the order they were read; here they always do."""
    global KEEP_DATA_LOADER_ORDER
    if not args:
        return KEEP_DATA_LOADER_ORDER
    if len(args) != 1 or not isinstance(args[0], bool):
        raise AssertionError(f"keep_data_loader_order expected one bool, received {args}; pass True or False")
    KEEP_DATA_LOADER_ORDER = args[0]
    return None


def next_feed(program: Program, feed: dict[str, Any]) -> dict[str, Any]:
    """The feed of a run: what the user gives, joined by the next batch of each reader that the program reads.

    Raises EOFException when a reader has no more batches.
    """
    readers = readers_of(program)
    if not readers:
        return feed
    joined = dict(feed)
    for loader, names in readers:
        if not all(name in feed for name in names):
            joined.update(zip(names, loader._next_batch(), strict=True))
    return joined


def default_collate_fn(batch: Sequence[Any]) -> list[np.ndarray]:
    """Stack a list of samples, field by field: [(x0, y0), (x1, y1)] -> [x0 and x1, y0 and y1]."""
    if isinstance(batch[0], np.ndarray):
        return [np.stack(batch, axis=0)]
    return [np.stack([np.asarray(value) for value in field], axis=0) for field in zip(*batch, strict=True)]


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


def _tensor(value: Any, var: Variable) -> Any:
    """A LoDTensor of a value that a generator yielded for ``var``; tensors stay as they are."""
    if isinstance(value, (LoDTensor, LoDTensorArray)):
        return value
    array = _array(value)
    if array.dtype.kind not in "biuf":
        array = np.asarray(value, to_numpy_dtype(var.dtype))
    tensor = LoDTensor()
    tensor.set(array, CPUPlace())
    return tensor


def _place_list(places: Places) -> list[Place]:
    return list(places) if isinstance(places, (list, tuple)) else [places]  # type: ignore[list-item]


class GeneratorLoader(DataLoaderBase):
    """A loader of what a Python generator yields; made by ``DataLoader.from_generator``.

    Args:
        feed_list: the variables, in the order of the generator's fields.
        capacity: how many batches are read ahead.
        use_double_buffer: accepted as in Fluid; batches are read ahead anyway.
        iterable: iterate over feeds; otherwise ``start()``, run until EOFException, ``reset()``.
        return_list: items are lists of tensors instead of dicts by name.
        drop_last: leave batches out that are too few for all places.
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
        if not iterable:
            create_program_reader(self, self._feed_list)

    @classmethod
    def _without_ops(cls, feed_list: Sequence[Variable], capacity: int) -> GeneratorLoader:
        """A loader to be started and reset, for a program that has its reader ops already."""
        loader = cls(feed_list, capacity)
        loader._iterable = False
        return loader

    @property
    def iterable(self) -> bool:
        """Whether the loader is iterated over."""
        return self._iterable

    @property
    def queue(self) -> Any:
        """The queue between the thread that reads and the one that runs; None before the first pass."""
        return None if self._worker is None else self._worker.channel

    # What to read.

    def set_sample_generator(
        self, reader: Reader, batch_size: int, drop_last: bool = True, places: Places | None = None
    ) -> GeneratorLoader:
        """Read single samples, each a tuple of one value for each variable, and make batches of ``batch_size``."""
        if batch_size <= 0:
            raise AssertionError(f"batch_size must be larger than 0, received {batch_size}; pass 1 or more")
        if any(var.lod_level for var in self._feed_list):
            return self.set_sample_list_generator(batch(reader, batch_size, drop_last), places)
        provider = BatchedTensorProvider(self._feed_list, CPUPlace(), batch_size, reader, drop_last)
        return self.set_batch_generator(provider, places)

    def set_sample_list_generator(self, reader: Reader, places: Places | None = None) -> GeneratorLoader:
        """Read lists of samples, as ``paddle.batch`` makes them."""
        feed_list = self._feed_list
        feeder = DataFeeder(feed_list, CPUPlace())

        def tensors() -> Iterator[Batch]:
            for samples in reader():
                feed = feeder.feed(samples)
                yield [feed[var.name] for var in feed_list]

        return self.set_batch_generator(tensors, places)

    def set_batch_generator(self, reader: Reader, places: Places | None = None) -> GeneratorLoader:
        """Read batches: a list or tuple of one array or LoDTensor for each variable."""

        feed_list = self._feed_list  # not the loader itself: the thread that reads must not keep it alive

        def tensors() -> Iterator[Batch]:
            for values in reader():
                yield _checked(values, feed_list)

        if self._iterable:
            insist(places is not None, "Places cannot be None when DataLoader is iterable", "pass places=")
            self._places = _place_list(places)  # type: ignore[arg-type]
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
        """Begin a pass; the program's runs read from it."""
        insist(not self._iterable, "start() cannot be called when DataLoader is iterable", "loop over the loader")
        self._begin()

    def reset(self) -> None:
        """End a pass, after EOFException or before."""
        insist(not self._iterable, "reset() cannot be called when DataLoader is iterable", "loop over the loader")
        self._end()

    def _reset(self) -> None:
        """End a pass, whatever kind of loader it is."""
        self._end()

    @staticmethod
    def _check_input_array(item: Any) -> np.ndarray:
        """One field of a batch as an array. Raises TypeError for lists of different lengths."""
        return _array(item)

    def _next_batch(self) -> Batch:
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
        self._worker = Prefetcher(self._source, self._capacity)

    def _end(self) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None


def _checked(values: Any, feed_list: Sequence[Variable]) -> Batch:
    if isinstance(values, dict):
        values = [values[var.name] for var in feed_list]
    if not isinstance(values, (list, tuple)) or len(values) != len(feed_list):
        received = f"{len(values)} values" if isinstance(values, (list, tuple)) else type(values).__name__
        raise ValueError(
            f"the loader's generator must yield one value for each of {[v.name for v in feed_list]}, but "
            f"received {received}; yield a tuple of {len(feed_list)}"
        )
    return [_tensor(value, var) for value, var in zip(values, feed_list, strict=True)]


class PyReader(DataLoaderBase):
    """A loader of what a Python generator yields; ``DataLoader.from_generator`` under its older name.

    Arguments as for GeneratorLoader.
    """

    def __init__(
        self,
        feed_list: Sequence[Variable] | None = None,
        capacity: int | None = None,
        use_double_buffer: bool = True,
        iterable: bool = True,
        return_list: bool = False,
    ) -> None:
        super().__init__()
        self._loader = DataLoader.from_generator(feed_list, capacity, use_double_buffer, iterable, return_list)

    @property
    def queue(self) -> Any:
        """The queue between the thread that reads and the one that runs; None before the first pass."""
        return self._loader.queue

    @property
    def iterable(self) -> bool:
        """Whether the reader is iterated over."""
        return self._loader.iterable

    def __iter__(self) -> Any:
        return iter(self._loader)

    def __next__(self) -> Any:
        return next(self._loader)

    def start(self) -> None:
        """Begin a pass; the program's runs read from it."""
        self._static_loader.start()

    def reset(self) -> None:
        """End a pass, after EOFException or before."""
        self._static_loader.reset()

    @property
    def _static_loader(self) -> GeneratorLoader:
        if isinstance(self._loader, GeneratorLoader):
            return self._loader
        raise AttributeError("a reader of eager mode has no start() and reset(): loop over it instead")

    def decorate_sample_generator(
        self, sample_generator: Reader, batch_size: int, drop_last: bool = True, places: Places | None = None
    ) -> None:
        """Read single samples, each a tuple of one value for each variable, and make batches of ``batch_size``."""
        self._loader.set_sample_generator(sample_generator, batch_size, drop_last, places)

    def decorate_sample_list_generator(self, reader: Reader, places: Places | None = None) -> None:
        """Read lists of samples, as ``paddle.batch`` makes them."""
        self._loader.set_sample_list_generator(reader, places)

    def decorate_batch_generator(self, reader: Reader, places: Places | None = None) -> None:
        """Read batches: a list or tuple of one array or LoDTensor for each variable."""
        self._loader.set_batch_generator(reader, places)


class DatasetLoader(DataLoaderBase):
    """A loader over the files of a ``fluid.dataset`` data set; made by ``DataLoader.from_dataset``."""

    def __init__(self, dataset: Any, places: Places, drop_last: bool) -> None:
        super().__init__()
        if not hasattr(dataset, "_feeds"):
            raise TypeError(
                f"dataset must be a fluid data set, received {type(dataset).__name__}; make one with "
                "fluid.DatasetFactory().create_dataset('QueueDataset'), or use DataLoader.from_generator"
            )
        self._dataset = dataset
        self._places = _place_list(places)
        self._drop_last = drop_last
        self._feeds: Iterator[dict[str, Any]] | None = None

    def __iter__(self) -> DatasetLoader:
        self._feeds = iter(self._dataset._feeds(self._drop_last))
        return self

    def __next__(self) -> list[dict[str, Any]]:
        insist(self._feeds is not None, "DataLoader is not being iterated", "call iter() on it first")
        assert self._feeds is not None and self._places is not None
        group = list(itertools.islice(self._feeds, len(self._places)))
        if not group or (len(group) < len(self._places) and self._drop_last):
            raise StopIteration
        return group


class DataLoader:
    """Batches of a data set whose samples are found by index.

    Args:
        dataset: a Dataset.
        feed_list: the variables, in the order of a sample's fields.
        places: where batches go: a place, or one for each device.
        return_list: items are lists of tensors; otherwise lists of one dict by name for each place.
        batch_sampler: a BatchSampler that says which samples make up each batch; or
        batch_size, shuffle, drop_last: what it is made of.
        collate_fn: from a list of samples to the values of a batch; ``default_collate_fn`` for None.
        num_workers: threads that get samples; 0 for none.
        use_buffer_reader: read ahead.
        use_shared_memory, timeout: accepted as in Fluid; threads share memory and do not hang.
        worker_init_fn: called with its number when a worker begins.

    ``DataLoader.from_generator`` and ``from_dataset`` make loaders of other sources.
    """

    def __init__(
        self,
        dataset: Dataset,
        feed_list: Sequence[Variable] | None = None,
        places: Places | None = None,
        return_list: bool = False,
        batch_sampler: BatchSampler | None = None,
        batch_size: int = 1,
        shuffle: bool = False,
        drop_last: bool = False,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        num_workers: int = 0,
        use_buffer_reader: bool = True,
        use_shared_memory: bool = True,
        timeout: int = 0,
        worker_init_fn: Callable[[int], None] | None = None,
    ) -> None:
        insist(isinstance(dataset, Dataset), "dataset should be subclass instance of paddle.io.Dataset", "derive it")
        insist(
            feed_list is not None or return_list or in_dygraph_mode(),
            "feed_list should be set when return_list=False",
            "pass it",
        )
        insist(places is not None, "places cannot be None", "pass places=fluid.CPUPlace() or the like")
        insist(num_workers >= 0, "num_workers should be a non-negative value", "pass 0 or more")
        insist(timeout >= 0, "timeout should be a non-negative value", "pass 0 or more")
        own = batch_size == 1 and not shuffle and not drop_last
        insist(
            batch_sampler is None or own,
            "batch_size/shuffle/drop_last should not be set when batch_sampler is given",
            "leave them out",
        )
        self.dataset = dataset
        self.feed_list = list(feed_list or ())
        self.places = _place_list(places)  # type: ignore[arg-type]
        self.return_list = return_list
        self.collate_fn = collate_fn or default_collate_fn
        self.num_workers = num_workers
        self.use_buffer_reader = use_buffer_reader
        self.worker_init_fn = worker_init_fn
        self.batch_sampler = batch_sampler or BatchSampler(
            dataset, batch_size=batch_size, shuffle=shuffle, drop_last=drop_last
        )

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def __iter__(self) -> Iterator[Any]:
        ahead = 2 * max(self.num_workers, 1)
        batches: Iterable[Batch] = Prefetcher(self._batches, ahead) if self.use_buffer_reader else self._batches()
        source = iter(batches)
        names = [var.name for var in self.feed_list]
        eager = in_dygraph_mode()
        try:
            while group := list(itertools.islice(source, len(self.places))):
                if eager:
                    yield to_variables(group[0])
                elif self.return_list:
                    yield group
                else:
                    yield [dict(zip(names, tensors, strict=True)) for tensors in group]
        finally:
            if isinstance(batches, Prefetcher):
                batches.close()

    def __call__(self) -> Iterator[Any]:
        return iter(self)

    def _batches(self) -> Iterator[Batch]:
        if not self.num_workers:
            return map(self._batch, self.batch_sampler)
        started = itertools.count()
        ready: set[int] = set()

        def work(indices: list[int]) -> Batch:
            self._init_worker(started, ready)
            return self._batch(indices)

        mapped = xmap_readers(work, lambda: self.batch_sampler, self.num_workers, 2 * self.num_workers, order=True)
        return iter(mapped())

    def _init_worker(self, started: Iterator[int], ready: set[int]) -> None:
        thread = threading.get_ident()
        if thread not in ready:
            ready.add(thread)
            if self.worker_init_fn is not None:
                self.worker_init_fn(next(started))

    def _batch(self, indices: list[int]) -> Batch:
        values = self.collate_fn([self.dataset[index] for index in indices])
        values = list(values) if isinstance(values, (list, tuple)) else [values]
        variables: Sequence[Any] = self.feed_list or [None] * len(values)
        return [_tensor(value, var) for value, var in zip(values, variables, strict=True)]

    @staticmethod
    def from_generator(
        feed_list: Sequence[Variable] | None = None,
        capacity: int | None = None,
        use_double_buffer: bool = True,
        iterable: bool = True,
        return_list: bool = False,
        use_multiprocess: bool = False,
        drop_last: bool = True,
    ) -> GeneratorLoader | DygraphGeneratorLoader:
        """A loader of what a Python generator yields; call one of its ``set_..._generator`` methods next.

        See GeneratorLoader for the arguments; in eager mode ``capacity`` alone has an effect. ``use_multiprocess`` has
        none: a thread reads ahead.
        """
        if in_dygraph_mode():
            return DygraphGeneratorLoader(capacity=capacity)
        return GeneratorLoader(feed_list, capacity, use_double_buffer, iterable, return_list, drop_last)

    @staticmethod
    def from_dataset(dataset: Any, places: Places, drop_last: bool = True) -> DatasetLoader:
        """A loader over the files of a ``fluid.dataset`` data set."""
        return DatasetLoader(dataset, places, drop_last)
