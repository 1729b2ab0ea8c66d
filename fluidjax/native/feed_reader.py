"""Readers over a queue of tensors: what loops over a loader ask for the next batch."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from fluidjax.base.errors import EOFException
from fluidjax.base.places import CPUPlace, Place
from fluidjax.base.values import LoDTensor
from fluidjax.eager.variables.varbase import VarBase
from fluidjax.execution.scopes.arrays import as_lodtensor
from fluidjax.readers.multi_slot_dataset import Dataset
from fluidjax.readers.tensor_queue import TensorQueue


class OrderedMultiDeviceLoDTensorBlockingQueue(TensorQueue):
    """A queue whose batches go to the devices in turn, as those of every queue do here."""

    def reset(self) -> None:
        """Start over: waiting batches are dropped, and new ones can be pushed."""
        self._open()


class MultiDeviceFeedReader:
    """Batches of a queue, one for each device at a time. StopIteration where the queue is closed and empty.

    Args:
        queue: has the batches, a list of tensors each.
        names: of the variables.
        places: the devices.
        drop_last: whether batches are left out that are too few for all devices.
    """

    def __init__(self, queue: TensorQueue, names: Sequence[str], places: Sequence[Place], drop_last: bool) -> None:
        self._queue, self._names = queue, list(names)
        self._places, self._drop_last = list(places), drop_last

    def read_next_list(self) -> list[list[Any]]:
        """For each device the tensors of a batch."""
        found = list(itertools.islice(self._batches(), len(self._places)))
        if not found or (len(found) < len(self._places) and self._drop_last):
            raise StopIteration
        return found

    def read_next(self) -> list[dict[str, Any]]:
        """For each device the tensors of a batch by the names of their variables."""
        return [dict(zip(self._names, tensors, strict=True)) for tensors in self.read_next_list()]

    def read_next_var_list(self) -> list[VarBase]:
        """The tensors of a batch as variables of eager mode."""
        (tensors,) = self.read_next_list()
        return [VarBase(tensor) for tensor in tensors]

    def reset(self) -> None:
        """End the pass: what waits is dropped."""
        self._queue.kill()

    def _batches(self) -> Iterator[list[Any]]:
        while True:
            try:
                yield self._queue.next_batch()
            except EOFException:
                return


class OrderedMultiDeviceFeedReader(MultiDeviceFeedReader):
    """Batches of a queue in the order in which they were pushed."""


def create_py_reader(
    queue: TensorQueue,
    names: Sequence[str],
    shapes: Sequence[Sequence[int]],
    dtypes: Sequence[int],
    need_check_feed: Sequence[bool],
    places: Sequence[Place],
    use_double_buffer: bool,
    drop_last: bool,
) -> MultiDeviceFeedReader:
    """A reader of a queue.

    Args:
        queue: has the batches.
        names: of the variables that a batch is for.
        shapes, dtypes, need_check_feed: accepted as in Fluid: what runs checks its feed.
        places: the devices; each reads a batch at a time.
        use_double_buffer: accepted as in Fluid: batches wait in the queue.
        drop_last: whether batches are left out that are too few for all devices.
    """
    ordered = isinstance(queue, OrderedMultiDeviceLoDTensorBlockingQueue)
    kind = OrderedMultiDeviceFeedReader if ordered else MultiDeviceFeedReader
    return kind(queue, names, places, drop_last)


class IterableDatasetWrapper:
    """The batches of a data set, one for each device at a time.

    Args:
        dataset: with its files and description set, and loaded if it is of the in-memory kind.
        slots: the names of the variables.
        places: the devices.
        batch_size: accepted as in Fluid: the data set's description says it.
        drop_last: whether batches are left out that are too few for all devices.
    """

    def __init__(
        self, dataset: Dataset, slots: Sequence[str], places: Sequence[Place], batch_size: int, drop_last: bool
    ) -> None:
        self._dataset, self._slots = dataset, set(slots)
        self._places, self._drop_last = list(places), drop_last
        self._feeds: Iterator[dict[str, Any]] = iter(())

    def _start(self) -> None:
        """Begin a pass."""
        described: dict[str, Any] = {slot.name: slot for slot in self._dataset.described()}
        self._feeds = iter(self._dataset.feeds({name: described[name] for name in self._slots}))

    def _next(self) -> list[dict[str, LoDTensor]]:
        """For each device the tensors of a batch by the names of their variables. StopIteration at the end."""
        found = list(itertools.islice(self._feeds, len(self._places)))
        if not found or (len(found) < len(self._places) and self._drop_last):
            raise StopIteration
        return [{name: _tensor(value) for name, value in feed.items()} for feed in found]


def _tensor(value: Any) -> LoDTensor:
    return value if isinstance(value, LoDTensor) else as_lodtensor(value, CPUPlace())
