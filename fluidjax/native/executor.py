"""``core.Executor``."""

from __future__ import annotations

from fluidjax import executor
from fluidjax.base.places import Place
from fluidjax.execution.native import NativeExecutor


class Executor(NativeExecutor):
    """Runs descs at a place; see ``NativeExecutor``.

    Args:
        place: where to compute.
    """

    def __init__(self, place: Place):
        above = executor.Executor(place)
        super().__init__(above.place, above.run, above.close)
