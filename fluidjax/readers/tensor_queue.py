"""The queue of a reader: what a script fills itself, tensor by tensor, or asks how full it is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fluidjax.base.errors import EnforceNotMet, EOFException
from fluidjax.base.places import CPUPlace
from fluidjax.base.scope import ScopeVariable
from fluidjax.base.values import LoDTensor
from fluidjax.readers.prefetch import Channel, ChannelClosed


class TensorQueue:
    """Batches between a thread that pushes them and the program that reads: ``reader.queue``.

    Args:
        capacity: maximum number of queued batches.

    Attributes:
        used: whether anything was pushed or the queue was closed; if so, the program reads from it.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = int(capacity)
        self._open()

    def _open(self) -> None:
        self._channel = Channel(self._capacity)
        self.used = False

    def follow(self, channel: Channel) -> None:
        """Stand for the queue of a loader that reads a generator: its size from now on is that of ``channel``."""
        self._channel = channel

    def push(self, tensors: Iterable[Any]) -> bool:
        """Push a batch, a LoDTensorArray with one tensor per variable, waiting for space. Returns False once closed."""
        self.used = True
        return self._channel.put(list(tensors))

    def close(self) -> None:
        """End the input: the program reads the remaining batches, then raises EOFException."""
        self.used = True
        self._channel.close()

    def kill(self) -> None:
        """Close immediately, dropping queued batches."""
        self.used = True
        self._channel = Channel(self._capacity)
        self._channel.close()

    def capacity(self) -> int:
        """The maximum number of queued batches."""
        return self._capacity

    def size(self) -> int:
        """The current number of queued batches."""
        return self._channel.qsize()

    def wait_for_inited(self) -> bool:
        """Always True: the queue exists from the start."""
        return True

    def next_batch(self) -> list[Any]:
        """The batch that waits longest, or the next to come. EOFException once the queue is closed and empty."""
        try:
            return self._channel.get()
        except ChannelClosed:
            raise EOFException(
                "There is no next data: the reader's queue is closed and empty; catch fluid.core.EOFException, or push"
                " before close()"
            ) from None


def init_lod_tensor_blocking_queue(var: ScopeVariable, capacity: int, is_ordered: bool = False) -> TensorQueue:
    """Store a new queue in a variable of a scope; returns the queue.

    Args:
        var: a variable without a value.
        capacity: maximum number of queued batches.
        is_ordered: accepted for compatibility with Fluid; there is only one order.

    Raises:
        EnforceNotMet: the variable already has a value.
    """
    if var.get_reader() is not None:
        raise EnforceNotMet(
            "LoDTensorBlockingQueueHolder::InitOnce() can only be called once: expected an empty variable, received one"
            f" that holds {type(var.get_reader()).__name__}; make another variable for another queue"
        )
    queue = TensorQueue(capacity)
    var._holder = queue
    return queue


def _convert_to_tensor_list(arrays: list[Any]) -> list[LoDTensor]:
    """A tensor of each array."""
    tensors = [LoDTensor() for _ in arrays]
    for tensor, array in zip(tensors, arrays, strict=True):
        tensor.set(array, CPUPlace())
    return tensors
