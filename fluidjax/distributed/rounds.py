"""Sync mode: rounds in which all trainers send, then the blocks run, then all trainers receive."""

from __future__ import annotations

from typing import Any

from fluidjax.distributed.client import BATCH_BARRIER, COMPLETE, FETCH_BARRIER
from fluidjax.distributed.parts import merged
from fluidjax.distributed.requests import Request
from fluidjax.distributed.serving import Serving
from fluidjax.distributed.shard import Shard
from fluidjax.distributed.wire import LAST, NOW
from lowering.errors import OpError


class Rounds(Serving):
    """Serves each request in its phase.

    A server starts in the receiving phase: the first round opens once all trainers' startup programs have fetched.
    """

    def __init__(self, shard: Shard, trainers: int) -> None:
        super().__init__(shard, trainers)
        self._fetching = True
        self._arrived: set[int] = set()
        self._waiting: list[Request] = []  # for the other phase
        self._given: dict[str, dict[int, Any]] = {}  # name -> trainer -> value

    def send(self, request: Request) -> None:
        """Store gradients and count barriers, which come with them or alone, in the sending phase."""
        names = request.message.names()
        if names == [COMPLETE]:
            self.complete(request)
        elif names == [FETCH_BARRIER]:
            self._fetched(request)
        elif self._fetching:
            self._waiting.append(request)
        else:
            self._keep(request)
            request.reply()
            if BATCH_BARRIER in names:
                self._arrive(request.trainer)

    def _fetched(self, request: Request) -> None:
        """Count a fetch barrier; that of a trainer whose batch is here belongs to the phase to come, and waits for it.

        A trainer that has nothing to fetch here asks for this alone, and so does not run ahead of the round.
        """
        if not self._fetching and request.trainer in self._arrived:
            self._waiting.append(request)
            return
        request.reply()
        if self._fetching:
            self._arrive(request.trainer)

    def get(self, request: Request) -> None:
        """Serve values in the receiving phase."""
        if self._fetching or request.message.flags & NOW:
            super().get(request)
            if request.message.flags & LAST:
                self._arrive(request.trainer)
        else:
            self._waiting.append(request)

    def send_and_get(self, request: Request) -> None:
        """Store the batch in the sending phase; the round that it completes is the one that is waited for."""
        if self._fetching:
            self._waiting.append(request)
        else:
            super().send_and_get(request)

    def lost(self, trainer: int) -> None:
        """Raise, since the other trainers would wait for ever."""
        raise OpError(
            f"trainer {trainer} ended without completing\n  expected: all {self.trainers} trainers of a synchronous"
            " job\n  received: a broken connection\n  what to do: restart the job from its last checkpoint"
        )

    def fail(self, error: Exception) -> None:
        """Report the error to requests waiting for their phase."""
        for request in self._waiting:
            request.refuse(error)

    def left(self, trainer: int) -> None:
        """Handle the completion of a trainer, whose gradients are zero from now on."""
        self._arrived.discard(trainer)
        self._turn()

    def _keep(self, request: Request) -> None:
        sent = {self._own_name(name): value for name, value in request.message.items if name != BATCH_BARRIER}
        self.shard.check_sent(sent.items())
        for name, value in sent.items():
            self._given.setdefault(name, {})[request.trainer] = value

    def _own_name(self, name: str) -> str:
        """The name used by the block: a sole trainer sends ``w@GRAD``, but the block sums ``w@GRAD.trainer_0``."""
        if self.trainers == 1 and f"{name}.trainer_0" in self.shard.received:
            return f"{name}.trainer_0"
        return name

    def _arrive(self, trainer: int) -> None:
        """Count a trainer's barrier."""
        self._arrived.add(trainer)
        self._turn()

    def _turn(self) -> None:
        """Switch to the other phase once all remaining trainers have arrived."""
        if not self.present or not self._arrived >= self.present:
            return
        if not self._fetching:
            given, self._given = self._given, {}
            self.shard.update_all({name: _sum(values) for name, values in given.items()})
        self._fetching = not self._fetching
        self._arrived = set()
        waiting, self._waiting = self._waiting, []
        for request in waiting:
            self.handle(request)


def _sum(values: dict[int, Any]) -> Any:
    """What trainers sent under one name, as all do for a distributed table in fleet's sync strategy."""
    return merged([values[trainer] for trainer in sorted(values)], mean=False)
