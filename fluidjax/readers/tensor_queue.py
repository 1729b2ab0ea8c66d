"""The queue of a ``py_reader`` that a script fills itself, tensor by tensor."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fluidjax.base.errors import EnforceNotMet, EOFException
from fluidjax.base.scope import ScopeVariable
from fluidjax.readers.prefetch import Channel, ChannelClosed


class TensorQueue:
    """Batches between a thread that pushes them and the program that reads: ``reader.queue``.

    Args:
        capacity: how many batches wait at most.

    Attributes:
        used: whether anything was pushed, or the queue closed: then the program reads from here.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = int(capacity)
        self._channel = Channel(capacity)
        self.used = False

    def push(self, tensors: Iterable[Any]) -> bool:
        """Add a batch, a LoDTensorArray with a tensor for each variable; waits for room. False once closed."""
        self.used = True
        return self._channel.put(list(tensors))

    def close(self) -> None:
        """Nothing comes any more: the program reads what waits, then EOFException."""
        self.used = True
        self._channel.close()

    def kill(self) -> None:
        """Close at once; what waits is dropped."""
        self.used = True
        self._channel = Channel(self._capacity)
        self._channel.close()

    def capacity(self) -> int:
        """How many batches wait at most."""
        return self._capacity

    def size(self) -> int:
        """How many batches wait now."""
        return self._channel.qsize()

    def wait_for_inited(self) -> bool:
        """True once the queue is there: it is from the beginning."""
        return True

    def _next_batch(self) -> list[Any]:
        try:
            return self._channel.get()
        except ChannelClosed:
            raise EOFException(
                "There is no next data: the reader's queue is closed and empty; catch fluid.core.EOFException, or push"
                " before close()"
            ) from None


def init_lod_tensor_blocking_queue(var: ScopeVariable, capacity: int, is_ordered: bool = False) -> TensorQueue:
    """Let a variable of a scope hold a queue, once; returns the queue.

    Args:
        var: a variable, empty until now.
        capacity: how many batches wait at most.
        is_ordered: accepted as in Fluid; there is one order here.

    Raises:
        EnforceNotMet: the variable holds something already.
    """
    if var.get_reader() is not None:
        raise EnforceNotMet(
            "LoDTensorBlockingQueueHolder::InitOnce() can only be called once: expected an empty variable, received one"
            f" that holds {type(var.get_reader()).__name__}; make another variable for another queue"
        )
    queue = TensorQueue(capacity)
    var._holder = queue
    return queue
