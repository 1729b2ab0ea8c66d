"""Loaders: batches for a program, prefetched by a thread.

Iterable loaders yield feeds. Other loaders belong to a program: they prepend a ``read`` op, and each ``Executor.run``
consumes the next batch, until ``fluid.core.EOFException``.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from fluidjax.base.later import later
from fluidjax.base.places import Place
from fluidjax.base.values import LoDTensor
from fluidjax.dataloader import BatchSampler, Dataset
from fluidjax.dataloader.dataloader_iter import default_collate_fn
from fluidjax.dataloader.turns import Turns
from fluidjax.framework import Variable, in_dygraph_mode
from fluidjax.paddle.reader import xmap_readers
from fluidjax.readers.eager import DygraphGeneratorLoader, to_variables
from fluidjax.readers.generator import Batch, GeneratorLoader, Places, Reader, place_list, to_tensor
from fluidjax.readers.loader import DataLoaderBase, Pass, insist
from fluidjax.readers.prefetch import Prefetcher

__all__ = ["PyReader", "DataLoader", "default_collate_fn"]

KEEP_DATA_LOADER_ORDER = True
QUEUE_GET_TIMEOUT = 60


def keep_data_loader_order(*args: bool) -> bool | None:
    """Get (without an argument) or set whether batches keep the order in which they were read; here they always do."""
    global KEEP_DATA_LOADER_ORDER
    if not args:
        return KEEP_DATA_LOADER_ORDER
    if len(args) != 1 or not isinstance(args[0], bool):
        raise AssertionError(f"keep_data_loader_order expected one bool, received {args}; pass True or False")
    KEEP_DATA_LOADER_ORDER = args[0]
    return None


class PyReader(DataLoaderBase):
    """A loader fed by a Python generator; the older name of ``DataLoader.from_generator``.

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
        """The queue between the reading thread and the running one; empty before the first pass."""
        return self._loader.queue

    @property
    def iterable(self) -> bool:
        """Whether the reader is iterable."""
        return self._loader.iterable

    def __iter__(self) -> Any:
        return iter(self._loader)

    def __next__(self) -> Any:
        return next(self._loader)

    def start(self) -> None:
        """Start a pass; runs of the program then read from it."""
        self._static_loader.start()

    def reset(self) -> None:
        """End a pass, after EOFException or earlier."""
        self._static_loader.reset()

    @property
    def _static_loader(self) -> GeneratorLoader:
        if isinstance(self._loader, GeneratorLoader):
            return self._loader
        raise AttributeError("a reader of eager mode has no start() and reset(): loop over it instead")

    def decorate_sample_generator(
        self, sample_generator: Reader, batch_size: int, drop_last: bool = True, places: Places | None = None
    ) -> None:
        """Read single samples, tuples with one value per variable, and batch them by ``batch_size``."""
        self._loader.set_sample_generator(sample_generator, batch_size, drop_last, places)

    def decorate_sample_list_generator(self, reader: Reader, places: Places | None = None) -> None:
        """Read lists of samples, as produced by ``paddle.batch``."""
        self._loader.set_sample_list_generator(reader, places)

    def decorate_batch_generator(self, reader: Reader, places: Places | None = None) -> None:
        """Read batches: a list or tuple with one array or LoDTensor per variable."""
        self._loader.set_batch_generator(reader, places)


class DatasetLoader(DataLoaderBase):
    """A loader over the files of a ``fluid.dataset`` dataset; created by ``DataLoader.from_dataset``."""

    def __init__(self, dataset: Any, places: Places, drop_last: bool) -> None:
        super().__init__()
        if not hasattr(dataset, "_feeds"):
            raise TypeError(
                f"dataset must be a fluid data set, received {type(dataset).__name__}; make one with "
                "fluid.DatasetFactory().create_dataset('QueueDataset'), or use DataLoader.from_generator"
            )
        self._dataset = dataset
        self._places = place_list(places)
        self._drop_last = drop_last
        self._feeds: Iterator[dict[str, Any]] | None = None

    def __iter__(self) -> DatasetLoader:
        self._feeds = iter(self._dataset._feeds(self._drop_last))
        return self

    def __next__(self) -> list[dict[str, Any]]:
        insist(self._feeds is not None, "DataLoader is not being iterated", "call iter() on it first")
        assert self._feeds is not None and self._places is not None
        group = list(itertools.islice(self._feeds, len(self._places)))
        if len(group) < len(self._places):  # some place would have no batch: Fluid drops the others
            raise StopIteration
        return [_tensors(feed, place) for feed, place in zip(group, self._places, strict=True)]


def _tensors(feed: dict[str, Any], place: Place) -> dict[str, LoDTensor]:
    """The values of a feed as tensors at a place."""
    found = {}
    for name, value in feed.items():
        tensor = found[name] = LoDTensor()
        tensor.set(np.asarray(value), place)
        if isinstance(value, LoDTensor):
            tensor.set_lod(value.lod())
    return found


class DataLoader:
    """Batches of a dataset whose samples are accessed by index.

    Args:
        dataset: a Dataset.
        feed_list: the variables, in the order of a sample's fields.
        places: where to place batches: one device, or several.
        return_list: yield lists of tensors; otherwise lists with one dict of tensors by name per device.
        batch_sampler: a BatchSampler that selects the samples of each batch; alternatively
        batch_size, shuffle, drop_last: the settings of one.
        collate_fn: converts a list of samples to the values of a batch; ``default_collate_fn`` if None.
        num_workers: number of threads that load samples; 0 for none. One batch at a time is loaded while loading
            draws from the generators of ``random`` or ``numpy.random``, which all threads share.
        use_buffer_reader: prefetch batches.
        use_shared_memory, timeout: accepted for compatibility with Fluid; threads share memory and do not hang.
        worker_init_fn: called with its index when a worker starts.

    ``DataLoader.from_generator`` and ``from_dataset`` create loaders for other sources.

    Examples:
        >>> x = fluid.data("x", [None, 2])
        >>> loader = fluid.io.DataLoader.from_generator(feed_list=[x], capacity=2)
        >>> samples = lambda: (([float(i), i + 0.5],) for i in range(4))
        >>> loader = loader.set_sample_generator(samples, batch_size=2, places=fluid.CPUPlace())
        >>> [np.array(batch[0]["x"]).tolist() for batch in loader()]
        [[[0.0, 0.5], [1.0, 1.5]], [[2.0, 2.5], [3.0, 3.5]]]
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
        devices = place_list(places)  # type: ignore[arg-type]
        insist(
            len(devices) == 1 or not in_dygraph_mode(), "Number of places must be 1 in dygraph mode", "pass one place"
        )
        insist(num_workers >= 0, "num_workers should be a non-negative value", "pass 0 or more")
        insist(timeout >= 0, "timeout should be a non-negative value", "pass 0 or more")
        insist(
            batch_sampler is None or isinstance(batch_sampler, BatchSampler),
            "batch_sampler should be None or subclass instance of paddle.io.BatchSampler",
            "derive it",
        )
        own = batch_size == 1 and not shuffle and not drop_last
        insist(
            batch_sampler is None or own,
            "batch_size/shuffle/drop_last should not be set when batch_sampler is given",
            "leave them out",
        )
        self.dataset = dataset
        self.feed_list = list(feed_list or ())
        self.places = devices
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

    def __iter__(self) -> Pass:
        return Pass(self._pass(), len(self))

    def _pass(self) -> Iterator[Any]:
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

    def __call__(self) -> Pass:
        return iter(self)

    def _batches(self) -> Iterator[Batch]:
        if not self.num_workers:
            return map(self._batch, self.batch_sampler)
        started = itertools.count()
        ready: set[int] = set()
        turns = Turns()

        def load(indices: list[int]) -> Batch:
            self._init_worker(started, ready)
            return self._batch(indices)

        def work(batch: tuple[int, list[int]]) -> Batch:
            return turns.take(batch[0], lambda: load(batch[1]))

        def todo() -> Iterator[tuple[int, list[int]]]:
            return enumerate(self.batch_sampler)

        return iter(xmap_readers(work, todo, self.num_workers, 2 * self.num_workers, order=True)())

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
        return [to_tensor(value, var) for value, var in zip(values, variables, strict=True)]

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
        """A loader fed by a Python generator; set its source with one of its ``set_..._generator`` methods.

        See GeneratorLoader for the arguments; in eager mode, DygraphGeneratorLoader. A thread does the prefetching,
        whatever ``use_multiprocess`` says.
        """
        if in_dygraph_mode():
            return DygraphGeneratorLoader(capacity=capacity, use_multiprocess=use_multiprocess)
        return GeneratorLoader(feed_list, capacity, use_double_buffer, iterable, return_list, drop_last)

    @staticmethod
    def from_dataset(dataset: Any, places: Places, drop_last: bool = True) -> DatasetLoader:
        """A loader over the files of a ``fluid.dataset`` dataset."""
        return DatasetLoader(dataset, places, drop_last)


# What Fluid's module has from another; imported when a script asks for it.
__getattr__, __dir__ = later(
    __name__,
    dict.fromkeys(
        ("CleanupFuncRegistrar", "_cleanup", "_cleanup_mmap", "_set_SIGCHLD_handler", "multiprocess_queue_set"),
        "fluidjax.multiprocess_utils",
    ),
)
