"""The modes without rounds: each gradient is used when it comes, and values are handed out as they are."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluidjax.distributed.client import BATCH_BARRIER, COMPLETE, FETCH_BARRIER
from fluidjax.distributed.requests import RefusedError, Request
from fluidjax.distributed.serving import Serving


class Asynchronous(Serving):
    """Serves requests at once."""

    def send(self, request: Request) -> None:
        """Run the block of each gradient."""
        for name, value in request.message.items:
            if name == COMPLETE:
                self.complete(request)
                return
            if name not in (BATCH_BARRIER, FETCH_BARRIER):
                self._use(name, value, request.trainer)
        request.reply()

    def _use(self, name: str, value: Any, trainer: int) -> None:
        if name not in self.shard.blocks:
            raise RefusedError(f"the server's program takes no variable {name!r}")
        self.shard.check_sent([(name, value)])
        if self.shard.compensates:
            self.shard.store({"@TRAINER_ID@": np.array([trainer], np.int32)})
        self.shard.update(name, {name: value})

    def get(self, request: Request) -> None:
        """Hand out values; with dc_asgd, remember what this trainer saw."""
        super().get(request)
        if self.shard.compensates:
            names = request.message.names()
            values = self.shard.values(names)
            copies = {f"{name}.trainer_{request.trainer}_bak": v for name, v in zip(names, values, strict=True)}
            self.shard.store({name: value for name, value in copies.items() if name in self.shard.held})

    def notify(self, request: Request) -> None:
        """Count the steps of a trainer, and run the schedule."""
        for name, value in request.message.items:
            if name not in self.shard.counters:
                raise RefusedError(f"the server's program counts no {name!r}")
            self.shard.store({name: self.shard.values([name])[0] + np.asarray(value)})
        self.shard.decay_rate()
        request.reply()

    def lost(self, trainer: int) -> None:
        """The others go on; it may come back."""

    def left(self, trainer: int) -> None:
        """Nobody waits for it."""

    def fail(self, error: Exception) -> None:
        """Nobody waits."""
