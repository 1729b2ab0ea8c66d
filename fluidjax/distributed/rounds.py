"""Sync mode: rounds in which all trainers send, then the blocks run, then all receive."""

from __future__ import annotations

from typing import Any

from fluidjax.distributed.client import BATCH_BARRIER, COMPLETE, FETCH_BARRIER
from fluidjax.distributed.requests import Request
from fluidjax.distributed.serving import Serving
from fluidjax.distributed.shard import Shard
from fluidjax.distributed.wire import NOW
from lowering.errors import OpError


class Rounds(Serving):
    """Serves requests when their phase comes.

    A server begins where trainers fetch: the first round opens when the startup programs of all have fetched.
    """

    def __init__(self, shard: Shard, trainers: int) -> None:
        super().__init__(shard, trainers)
        self._fetching = True
        self._arrived: set[int] = set()
        self._waiting: list[Request] = []  # for the other phase
        self._given: dict[str, Any] = {}

    def send(self, request: Request) -> None:
        """Keep gradients and count barriers; both wait for the phase in which trainers send."""
        names = request.message.names()
        if names == [COMPLETE]:
            self.complete(request)
        elif names == [FETCH_BARRIER]:
            self._arrive(request, here=self._fetching)
        elif not self._fetching and names == [BATCH_BARRIER]:
            self._arrive(request, here=True)
        elif self._fetching:
            self._waiting.append(request)
        else:
            self._keep(request)

    def get(self, request: Request) -> None:
        """Hand out values in the phase in which trainers fetch."""
        if self._fetching or request.message.flags & NOW:
            super().get(request)
        else:
            self._waiting.append(request)

    def lost(self, trainer: int) -> None:
        """The others would wait for ever."""
        raise OpError(
            f"trainer {trainer} ended without completing\n  expected: all {self.trainers} trainers of a synchronous"
            " job\n  received: a broken connection\n  what to do: restart the job from its last checkpoint"
        )

    def fail(self, error: Exception) -> None:
        """Tell those who wait for their phase."""
        for request in self._waiting:
            request.refuse(error)

    def left(self, trainer: int) -> None:
        """A trainer completed: from now on its gradients count as zero."""
        self._arrived.discard(trainer)
        self._turn()

    def _keep(self, request: Request) -> None:
        names = [self._own_name(name) for name in request.message.names()]
        sent = dict(zip(names, request.message.values(), strict=True))
        self.shard.check_sent(sent.items())
        self._given.update(sent)
        request.reply()

    def _own_name(self, name: str) -> str:
        """The only trainer sends ``w@GRAD``, but the block adds up ``w@GRAD.trainer_0``."""
        if self.trainers == 1 and f"{name}.trainer_0" in self.shard.received:
            return f"{name}.trainer_0"
        return name

    def _arrive(self, request: Request, *, here: bool) -> None:
        request.reply()
        if here:
            self._arrived.add(request.trainer)
            self._turn()

    def _turn(self) -> None:
        """Begin the other phase if all trainers that are left have arrived."""
        if not self.present or not self._arrived >= self.present:
            return
        if not self._fetching:
            given, self._given = self._given, {}
            self.shard.update_all(given)
        self._fetching = not self._fetching
        self._arrived = set()
        waiting, self._waiting = self._waiting, []
        for request in waiting:
            self.handle(request)
