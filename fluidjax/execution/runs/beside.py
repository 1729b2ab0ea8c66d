"""What later runs learn from one: its time, which guides the choice of rooms, and what to compile beside the runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from fluidjax.execution.executables import background
from fluidjax.execution.rooms.families import Family, Room, Sizes
from fluidjax.execution.rooms.tiers import Visit
from fluidjax.execution.runs.compilations import Compilations
from fluidjax.execution.runs.retry import Attempts
from fluidjax.execution.runs.whole import WholeRuns
from lowering.engine.x64 import with_device


class Beside:
    """Compiles rooms of a job that runs as one jitted step."""

    def __init__(self, attempts: Attempts, whole: WholeRuns, compilations: Compilations):
        self._attempts = attempts
        self._whole = whole
        self._compilations = compilations

    def again(self, family: Family, sizes: Sizes) -> Visit | None:
        """A run of a batch like those before, which has only to be counted (see ``Tiers.again``)."""
        whole = self._whole.compiled
        return None if whole is None else self._compilations.tiers.again(family, sizes, whole.price)

    def note(self, visit: Visit, seed: Any, results: Any, *, compiled: bool) -> None:
        """Note a run, in which something was ``compiled`` or not, and start the compilations that now pay."""
        if visit.timed and not compiled:
            jax.block_until_ready(results)
            visit.done(self._compilations.tiers.took(visit))
        else:
            visit.done(None)
        state, whole = self._compilations.state(), self._whole.compiled
        if state is None or not state.compiled or whole is None:
            return
        room = self._compilations.tiers.due(visit, whole.price)
        if room is not None:
            values = [*state.kept, *self._attempts.feeds_in(room.sizes)]
            task = whole.ahead(state.replaced, values, seed)
            background.submit(_tried(task, lambda: self._compilations.tiers.opened(visit, room), room))


def _tried(task: Callable[[], None], opened: Callable[[], None], room: Room) -> background.Task:
    device = jax.config.jax_default_device  # type: ignore[attr-defined]

    def compile() -> None:
        try:
            with_device(device, task)
        except Exception:  # noqa: BLE001 - a run that needs this room will meet it again, and say so
            room.failed = True
        else:
            opened()

    return compile
