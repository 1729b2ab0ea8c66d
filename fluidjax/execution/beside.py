"""What follows from a run for later ones: its time for the choice of rooms, and rooms to compile beside the runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax

from fluidjax.execution import background
from fluidjax.execution.compilations import Compilations
from fluidjax.execution.retry import Attempts
from fluidjax.execution.tiers import Room, Visit
from fluidjax.execution.whole import WholeRuns
from lowering.engine.x64 import with_device


class Beside:
    """Compiles rooms of a job that runs as one jitted step."""

    def __init__(self, attempts: Attempts, whole: WholeRuns, compilations: Compilations):
        self._attempts = attempts
        self._whole = whole
        self._compilations = compilations

    def note(self, visit: Visit, seed: Any, results: Any, started: float, *, compiled: bool) -> None:
        """Note a run that began when ``time.perf_counter()`` said ``started``, and begin what has become worth it."""
        if not visit.timed and not compiled:
            visit.done(None, compiled=False)
        else:
            jax.block_until_ready(results)
            visit.done(time.perf_counter() - started, compiled=compiled)
        state = self._compilations.state()
        if state is None or not state.compiled or self._whole.compiled is None:
            return
        room = self._compilations.tiers.due(visit)
        if room is not None:
            values = [*state.kept, *self._attempts.feeds_in(room.sizes)]
            task = self._whole.compiled.ahead(state.replaced, values, seed)
            background.submit(_timed(task, lambda seconds: self._compilations.tiers.opened(visit, room, seconds), room))


def _timed(task: Callable[[], None], opened: Callable[[float], None], room: Room) -> background.Task:
    device = jax.config.jax_default_device  # type: ignore[attr-defined]

    def compile() -> None:
        started = time.perf_counter()
        try:
            with_device(device, task)
        except Exception:  # noqa: BLE001 - a run that needs this room will meet it again, and say so
            room.failed = True
        else:
            opened(time.perf_counter() - started)

    return compile
