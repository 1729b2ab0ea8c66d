"""Behaviour common to all modes: which trainers are present, and what is served."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fluidjax.distributed import settings
from fluidjax.distributed.client import BATCH_BARRIER
from fluidjax.distributed.requests import RefusedError, Request
from fluidjax.distributed.shard import Shard
from fluidjax.distributed.wire import Message
from fluidjax.files import atomic
from fluidjax.files.remote import TABLES
from fluidjax.files.tensor import encode

_ABSENT = 20.0  # seconds that a server waits for trainers that never came, when others have completed


class Serving:
    """Answers requests.

    Attributes:
        present: indices of the trainers that have not completed.
        owed: what is to be done for requests that are answered already, before any other is served.
    """

    def __init__(self, shard: Shard, trainers: int) -> None:
        self.shard, self.trainers = shard, trainers
        self.present = set(range(trainers))
        self.owed: deque[Callable[[], None]] = deque()
        self._attending: dict[int, int] = {}
        self._gone: set[int] = set()

    @property
    def patience(self) -> float:
        """Seconds to wait for a request before the server exits.

        Unlimited while any trainer is connected or none has completed. Otherwise all have finished, or the missing ones
        never connected to this server, which may replace one that they knew.
        """
        if self.present <= self._gone:
            return settings.linger() if not any(self._attending.values()) else math.inf
        if any(self._attending.values()) or len(self.present) == self.trainers:
            return math.inf
        return min(_ABSENT, settings.deadline())

    def handle(self, request: Request) -> None:
        """Answer a request, now or later; refuse an invalid one. Raises errors that stop the server."""
        try:
            self.settle()
            self._handle(request)
        except RefusedError as error:
            request.refuse(error)
        except Exception as error:
            request.refuse(error)
            raise

    def settle(self) -> None:
        """Do what is owed. Raises errors that stop the server."""
        while self.owed:
            self.owed.popleft()()

    def _handle(self, request: Request) -> None:
        if not 0 <= request.trainer < self.trainers:
            raise RefusedError(f"there is no trainer {request.trainer}: there are {self.trainers}")
        _check_numbers(request)
        getattr(self, _SERVED_BY[request.method])(request)

    def send(self, request: Request) -> None:
        """Accept values sent by a trainer."""
        raise NotImplementedError

    def get(self, request: Request) -> None:
        """Serve values."""
        names = request.message.names()
        request.reply(Message(list(zip(names, self.shard.values(names), strict=True))))

    def send_and_get(self, request: Request) -> None:
        """Accept a trainer's batch, the values of a request, and serve the names without one after the round."""
        message = request.message
        sent = [(name, value) for name, value in message.items if value is not None]
        asked = [(name, None) for name, value in message.items if value is None]
        self.send(Request("SendVariable", Message([*sent, (BATCH_BARRIER, None)], message.trainer)))
        self.get(Request("GetVariable", Message(asked, message.trainer, message.flags), request.answer))

    def prefetch(self, request: Request) -> None:
        """Serve rows of tables."""
        found = [(name, self.shard.rows(name, ids.reshape(-1))) for name, ids in request.message.items]
        request.reply(Message(found))

    def save(self, request: Request) -> None:
        """Save this server's shard of a growing table to the directory named in the notice."""
        for name, folder in request.message.items:
            value = self.shard.table_file(name)
            path = Path(bytes(folder.astype(np.uint8)).decode(errors="replace"))
            if path.name != TABLES or ".." in path.parts or "/" in name or "\0" in str(path):
                raise RefusedError(f"tables are saved in folders named {TABLES}, not in {path}")
            try:
                path.mkdir(parents=True, exist_ok=True)
                atomic.write_file(str(path / f"{name}_{self.shard.number}"), encode(value))
            except OSError as error:
                raise RefusedError(f"the table {name!r} cannot be saved: {error}") from error
        request.reply()

    def notify(self, request: Request) -> None:
        """Count the steps of a trainer."""
        self.count(request)
        request.reply()

    def count(self, request: Request) -> None:
        """Add to the counters that a request names."""
        for name, value in request.message.items:
            if name not in self.shard.counters:
                raise RefusedError(f"the server's program counts no {name!r}")
            if value.size != 1:
                raise RefusedError(f"steps are counted by one number, received {value.size} for {name!r}")
            known = self.shard.values([name])[0]
            self.shard.store({name: known + value.reshape(known.shape).astype(known.dtype)})

    def complete(self, request: Request) -> None:
        """Handle the regular completion of a trainer."""
        self.present.discard(request.trainer)
        request.reply()
        self.left(request.trainer)

    def left(self, trainer: int) -> None:
        """Continue without a trainer that has completed."""
        raise NotImplementedError

    def lost(self, trainer: int) -> None:
        """Continue without a trainer whose process died, or raise."""
        raise NotImplementedError

    def fail(self, error: Exception) -> None:
        """Tell all waiting trainers that the server is stopping."""
        raise NotImplementedError

    def _attend(self, request: Request) -> None:
        self._count_connection(request.trainer, 1)

    def _leave(self, request: Request) -> None:
        self._count_connection(request.trainer, -1)

    def _count_connection(self, trainer: int, change: int) -> None:
        """A connection came, or broke; of one that was short, the end may be heard of first."""
        count = self._attending[trainer] = self._attending.get(trainer, 0) + change
        if count > 0:
            self._gone.discard(trainer)
        elif count == 0 and trainer in self.present:
            self._gone.add(trainer)
            self.lost(trainer)


# The functions that serve the methods.
_SERVED_BY = {
    "SendVariable": "send",
    "GetVariable": "get",
    settings.SEND_AND_GET: "send_and_get",
    "PrefetchVariable": "prefetch",
    "CheckpointNotify": "save",
    "DistributeNotify": "notify",
    "Attend": "_attend",
    "Gone": "_leave",
}
# The kinds of numbers that go with names, by method.
_NUMBERS = {"PrefetchVariable": "iu", "CheckpointNotify": "u", "DistributeNotify": "i"}


def _check_numbers(request: Request) -> None:
    """RefusedError for names without a value, or with one that the method has no use for."""
    kinds = _NUMBERS.get(request.method, "")
    for name, value in request.message.items if kinds else ():
        if not isinstance(value, np.ndarray) or value.dtype.kind not in kinds:
            received = "nothing" if value is None else f"{type(value).__name__} of {value.dtype}"
            raise RefusedError(f"{request.method} wants integers with {name!r}, received {received}")
