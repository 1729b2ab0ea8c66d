"""The trainer's side of Geo-SGD: optimises locally and periodically exchanges parameter deltas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from fluidjax.base.scope import Scope
from fluidjax.distributed.client import client
from fluidjax.distributed.communicator import Communication
from fluidjax.distributed.parts import Target
from fluidjax.distributed.wire import CHANGED
from fluidjax.execution.runs.outside import Outside
from fluidjax.execution.scopes.state import gather_values
from fluidjax.execution.scopes.writer import write_back
from lowering.ops.distributed.parts import ids_of
from lowering.values import SelectedRows

_START = "param_init"


class Geo(Communication):
    """Every ``steps`` steps: sends (parameter - old) / trainers, and applies the changes made by others.

    ``old`` is the servers' state at the last exchange. For sparse tables, only the rows used are sent, and only rows
    changed by some trainer are received.

    Args:
        params: maps each parameter to the location of its shards.
        sparse: parameters that are tables.
        trainers: number of trainers.
    """

    def __init__(
        self, params: Mapping[str, Target], sparse: Sequence[str], trainers: int, steps: int, scope: Scope
    ) -> None:
        super().__init__({}, params, scope, {})
        self._sparse, self._trainers, self._steps = set(sparse), trainers, steps
        self._old: dict[str, np.ndarray] = {}
        self._used: dict[str, list[np.ndarray]] = {name: [] for name in sparse}
        self._done = 0

    def push(self, names: Sequence[str], values: Sequence[Any], there: Sequence[str], outside: Outside) -> None:
        """Record the ids used by a step; if due, exchange once the step's values are in the scope."""
        if list(there) == [_START]:
            outside.afterwards.append(self._begin)
            return
        for table, ids in zip(there, values, strict=True):
            self._used[table].append(ids_of(ids))
        self._done += 1
        if self._done % self._steps == 0:
            outside.afterwards.append(self._exchange)

    def barrier(self) -> None:
        """A no-op in this mode."""

    def stop(self) -> None:
        """Send what is pending, and stop."""
        if self.is_running() and self._done % self._steps:
            self._exchange()
        super().stop()

    def _now(self) -> dict[str, np.ndarray]:
        held = gather_values(self._scope, self._receives, exact=True)
        return {name: np.array(held[name]) for name in self._receives}

    def _begin(self) -> None:
        self._old = self._now()

    def _exchange(self) -> None:
        if not self._old:
            self._begin()
            return
        now = self._now()
        client.tell(item for name in self._receives for item in self._moved(name, now[name]))
        for flags in (0, CHANGED):
            names = [name for name in now if (name in self._sparse) == bool(flags)]
            for name, parts in self._asked(names, flags).items():
                self._take_over(name, now[name], parts)
        write_back(self._scope, now)

    def _asked(self, names: Sequence[str], flags: int) -> dict[str, list[Any]]:
        """What the servers hold of some parameters, part by part; all are asked for at once."""
        wanted = {name: self._receives[name].wanted() for name in names}
        items = [(endpoint, part, None) for pairs in wanted.values() for endpoint, part in pairs]
        answers = iter(client.ask("GetVariable", items, flags))
        return {name: list(islice(answers, len(pairs))) for name, pairs in wanted.items()}

    def _moved(self, name: str, now: np.ndarray) -> list[tuple[str, str, Any]]:
        old = self._old[name]
        share = now.dtype.type(1 / self._trainers)
        if name in self._sparse:
            rows = np.unique(np.concatenate(self._used[name] or [np.zeros(0, np.int64)])).astype(np.int64)
            self._used[name] = []
            delta: Any = SelectedRows(rows, (now[rows] - old[rows]) * share, len(now))
            old[rows] += delta.values
        else:
            delta = (now - old) * share
            old += delta
        parts = self._receives[name].split(delta)
        return [(endpoint, f"{part}.delta", value) for endpoint, part, value in parts]

    def _take_over(self, name: str, now: np.ndarray, parts: Sequence[Any]) -> None:
        """param += server - old; old = server, for whatever the servers report as new."""
        old, begin = self._old[name], 0
        for part, height in zip(parts, self._heights(name, parts), strict=True):
            rows = part.rows + begin if isinstance(part, SelectedRows) else slice(begin, begin + height)
            values = part.values if isinstance(part, SelectedRows) else part
            now[rows] += values - old[rows]
            old[rows] = values
            begin += height

    def _heights(self, name: str, parts: Sequence[Any]) -> Sequence[int]:
        sections = self._receives[name].sections
        return sections if len(parts) > 1 else [len(self._old[name])]
