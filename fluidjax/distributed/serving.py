"""What all modes do: who is there, what is handed out."""

from __future__ import annotations

from fluidjax.distributed.requests import RefusedError, Request
from fluidjax.distributed.shard import Shard
from fluidjax.distributed.wire import Message


class Serving:
    """Answers requests.

    Attributes:
        present: numbers of the trainers that have not completed.
    """

    def __init__(self, shard: Shard, trainers: int) -> None:
        self.shard, self.trainers = shard, trainers
        self.present = set(range(trainers))
        self._attending: dict[int, int] = {}
        self._gone: set[int] = set()

    @property
    def ended(self) -> bool:
        """Whether nobody is left to be served: all have completed, or died, and their connections are closed."""
        return self.present <= self._gone and not any(self._attending.values())

    def handle(self, request: Request) -> None:
        """Answer a request, now or later. Raises what ends the server, and RefusedError for what cannot be."""
        if not 0 <= request.trainer < self.trainers:
            raise RefusedError(f"there is no trainer {request.trainer}: there are {self.trainers}")
        methods = {
            "SendVariable": self.send,
            "GetVariable": self.get,
            "PrefetchVariable": self.prefetch,
            "CheckpointNotify": self.save,
            "DistributeNotify": self.notify,
            "Attend": self._attend,
            "Gone": self._leave,
        }
        methods[request.method](request)

    def send(self, request: Request) -> None:
        """Take what a trainer sends."""
        raise NotImplementedError

    def get(self, request: Request) -> None:
        """Hand out values."""
        names = request.message.names()
        request.reply(Message(list(zip(names, self.shard.values(names), strict=True))))

    def prefetch(self, request: Request) -> None:
        """Hand out rows of tables."""
        found = [(name, self.shard.rows(name, ids.reshape(-1))) for name, ids in request.message.items]
        request.reply(Message(found))

    def save(self, request: Request) -> None:
        """Save the table that grows."""
        raise RefusedError("the server's program has no table to save")

    def notify(self, request: Request) -> None:
        """Take note."""
        raise RefusedError("the server's program counts nothing")

    def complete(self, request: Request) -> None:
        """A trainer ends in order."""
        self.present.discard(request.trainer)
        request.reply()
        self.left(request.trainer)

    def left(self, trainer: int) -> None:
        """Go on without a trainer that has completed."""
        raise NotImplementedError

    def lost(self, trainer: int) -> None:
        """Go on without a trainer whose process died, or raise."""
        raise NotImplementedError

    def fail(self, error: Exception) -> None:
        """Tell all who wait that the server ends."""
        raise NotImplementedError

    def _attend(self, request: Request) -> None:
        self._attending[request.trainer] = self._attending.get(request.trainer, 0) + 1
        self._gone.discard(request.trainer)

    def _leave(self, request: Request) -> None:
        trainer = request.trainer
        self._attending[trainer] -= 1
        if not self._attending[trainer] and trainer in self.present:
            self._gone.add(trainer)
            self.lost(trainer)
