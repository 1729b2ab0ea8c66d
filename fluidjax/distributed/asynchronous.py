"""The modes without rounds: each gradient is applied on arrival, and current values are served at any time."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from fluidjax.distributed.client import BATCH_BARRIER, COMPLETE, FETCH_BARRIER
from fluidjax.distributed.requests import RefusedError, Request
from fluidjax.distributed.serving import Serving
from fluidjax.distributed.shard import Shard
from fluidjax.distributed.wire import CHANGED, Message
from lowering.values import SelectedRows

_FEW = 1 << 16  # rows that are not worth sorting


class Changed:
    """Rows of a table; however often they are added, memory for about twice their number is held."""

    def __init__(self) -> None:
        self._parts: list[np.ndarray] = []
        self._held = self._distinct = 0

    def add(self, rows: np.ndarray) -> None:
        """Add rows, of which some may be there."""
        self._parts.append(np.array(rows))  # what a message holds would keep all of it
        self._held += len(rows)
        if self._held > max(2 * self._distinct, _FEW):
            self._parts = [self._all()]
            self._held = self._distinct = len(self._parts[0])

    def take(self) -> np.ndarray:
        """All rows, increasing; none is left."""
        rows = self._all()
        self._parts, self._held, self._distinct = [], 0, 0
        return rows

    def _all(self) -> np.ndarray:
        return np.unique(np.concatenate([np.zeros(0, np.int64), *self._parts]))


class Asynchronous(Serving):
    """Serves requests immediately."""

    def __init__(self, shard: Shard, trainers: int) -> None:
        super().__init__(shard, trainers)
        self._scheduled = False
        # table -> for each trainer the rows that have changed since it last asked for them
        self._changed: dict[str, list[Changed]] = {
            table: [Changed() for _ in range(trainers)] for table in shard.tables.values()
        }

    def send(self, request: Request) -> None:
        """Answer, and owe the run of each gradient's block."""
        if COMPLETE in request.message.names():
            self.complete(request)
            return
        sent = [(name, value) for name, value in request.message.items if name not in (BATCH_BARRIER, FETCH_BARRIER)]
        for name, _ in sent:
            if name not in self.shard.blocks:
                raise RefusedError(f"the server's program takes no variable {name!r}")
        self.shard.check_sent(sent)
        request.reply()
        self.owed.extend(partial(self._use, name, value, request.trainer) for name, value in sent)

    def _use(self, name: str, value: Any, trainer: int) -> None:
        if isinstance(value, SelectedRows) and not len(value.rows):
            return  # in Fluid trainers do not send it, so that nothing decays; in rounds blocks run without it, too
        if not self._scheduled:
            self._schedule()
        if self.shard.compensates:
            self.shard.store({"@TRAINER_ID@": np.array([trainer], np.int32)})
        self.shard.update(name, {name: value})
        for rows in self._changed.get(self.shard.tables.get(name, ""), ()):
            rows.add(value.rows)

    def get(self, request: Request) -> None:
        """Serve values, or the changed rows of tables; with dc_asgd, remember what this trainer was sent."""
        if request.message.flags & CHANGED:
            found = [(name, self._news(name, request.trainer)) for name in request.message.names()]
            request.reply(Message(found))
            return
        super().get(request)
        if self.shard.compensates:
            names = request.message.names()
            values = self.shard.values(names)
            copies = {f"{name}.trainer_{request.trainer}_bak": v for name, v in zip(names, values, strict=True)}
            self.shard.store({name: value for name, value in copies.items() if name in self.shard.declared})

    def _news(self, table: str, trainer: int) -> Any:
        if table not in self._changed:
            raise RefusedError(f"the server's program holds no table {table!r}")
        rows = self._changed[table][trainer].take()
        return SelectedRows(rows, self.shard.rows(table, rows), self.shard.height(table))

    def notify(self, request: Request) -> None:
        """Count the steps of a trainer, and run the schedule."""
        self.count(request)
        self._schedule()
        request.reply()

    def _schedule(self) -> None:
        """Update the learning rate for the steps counted, at the latest before the first gradient."""
        self._scheduled = True
        if self.shard.decay >= 0:
            self.shard.decay_rate()

    def lost(self, trainer: int) -> None:
        """Continue without the trainer, which may reconnect."""

    def left(self, trainer: int) -> None:
        """Nothing to do: no request depends on it."""

    def fail(self, error: Exception) -> None:
        """Nothing to do: no request is pending."""
