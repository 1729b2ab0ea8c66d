"""The loader for eager mode: yields batches as lists of variables."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from fluidjax.framework import Variable, _dygraph_tracer
from fluidjax.paddle.batch import batch
from fluidjax.readers.loader import DataLoaderBase, insist, reader_failure
from fluidjax.readers.prefetch import Prefetcher
from fluidjax.readers.shared_memory import travel_by_name
from fluidjax.readers.tensor_queue import TensorQueue, _convert_to_tensor_list

Reader = Callable[[], Iterable[Any]]


def to_variables(values: Iterable[Any]) -> list[Any]:
    """Convert the arrays of a batch to eager variables."""
    tracer = _dygraph_tracer()
    insist(tracer is not None, "a loader of eager mode is read outside of it", "read it inside fluid.dygraph.guard()")
    return [value if isinstance(value, Variable) else tracer.to_variable(np.asarray(value)) for value in values]


class DygraphGeneratorLoader(DataLoaderBase):
    """A loader fed by a Python generator, for eager mode; created by ``DataLoader.from_generator``.

    Iterating over it yields lists of variables.

    Args:
        feed_list, use_double_buffer, iterable, return_list: accepted for compatibility; Fluid ignores them here.
        capacity: number of batches to prefetch.
        use_multiprocess: prefetching is done by a thread all the same; but tensors that a script puts into queues of
            ``multiprocessing`` go through shared memory.
    """

    def __init__(
        self,
        feed_list: Any = None,
        capacity: int | None = None,
        use_double_buffer: bool = True,
        iterable: bool = True,
        return_list: bool = True,
        use_multiprocess: bool = False,
    ) -> None:
        super().__init__()
        if not capacity:
            raise ValueError(f"Please give value to capacity: received {capacity}; pass a number of batches, 1 or more")
        self._capacity = capacity
        self._batch_reader: Reader | None = None
        self._data_queue: Any = None
        self._worker: Prefetcher | None = None
        self._queue = TensorQueue(capacity)
        if use_multiprocess:
            travel_by_name()

    @property
    def iterable(self) -> bool:
        """Always True."""
        return True

    @property
    def queue(self) -> TensorQueue:
        """The queue between the reading thread and the running one; empty before the first pass."""
        return self._queue

    def set_sample_generator(
        self, reader: Reader, batch_size: int, drop_last: bool = True, places: Any = None
    ) -> DygraphGeneratorLoader:
        """Read single samples, tuples of values, and batch them by ``batch_size``."""
        insist(batch_size > 0, f"batch_size must be larger than 0, received {batch_size}", "pass 1 or more")
        return self.set_sample_list_generator(batch(reader, batch_size, drop_last), places)

    def set_sample_list_generator(self, reader: Reader, places: Any = None) -> DygraphGeneratorLoader:
        """Read lists of samples, as produced by ``paddle.batch``."""

        def batches() -> Iterator[list[np.ndarray]]:
            for samples in reader():
                yield [np.array(field) for field in zip(*samples, strict=True)]

        return self.set_batch_generator(batches, places)

    def set_batch_generator(self, reader: Reader, places: Any = None) -> DygraphGeneratorLoader:
        """Read batches: lists or tuples of arrays."""
        self._batch_reader = reader
        return self

    def __iter__(self) -> DygraphGeneratorLoader:
        insist(
            self._batch_reader is not None,
            "Data source of DataLoader has not set yet",
            "call set_sample_generator, set_sample_list_generator or set_batch_generator",
        )
        self._end()
        assert self._batch_reader is not None
        self._worker = Prefetcher(self._batch_reader, self._capacity, reader_failure)
        self._queue.follow(self._worker.channel)
        return self

    def __next__(self) -> list[Any]:
        insist(self._worker is not None, "DataLoader is not being iterated", "call iter() on it first")
        assert self._worker is not None
        try:
            fields = next(self._worker)
            try:
                return to_variables(fields)
            except Exception as error:  # what was read is no batch
                raise reader_failure(error) from None
        except BaseException:
            self._end()
            raise

    def _reader_process_loop(self) -> None:
        """Put a pass into ``_data_queue``, as Fluid's loader does in a process of its own.

        A list of LoDTensors for each batch, then None; a keyboard interrupt, which the main process gets too, ends it.
        Raises EnforceNotMet where something else than a batch is read.
        """
        with contextlib.suppress(KeyboardInterrupt):
            assert self._batch_reader is not None
            for fields in self._batch_reader():
                try:
                    tensors = _convert_to_tensor_list(fields)
                except Exception as error:  # what was read is no batch
                    raise reader_failure(error) from None
                self._data_queue.put(tensors)
            self._data_queue.put(None)

    def _end(self) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None
