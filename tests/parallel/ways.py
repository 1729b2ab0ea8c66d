"""The ways in which several devices run a program, for ``tests.parallel.physical`` and what it runs."""

from __future__ import annotations

from typing import Any

from fluidjax.execution.devices.several import SeveralDevices
from fluidjax.execution.devices.staged import Staged
from tests.parallel.test_data_parallel import Training


def ways(training: Training) -> list[str]:
    """Of each program that was written for the runs so far, the way it runs: together, spread or staged."""
    return [key[-1] for key in training.program._several._written]


def repeated(training: Training) -> int:
    """How many of its runs in stages called what earlier ones had compiled."""
    return sum(run.repeated for run in training.program._several._written.values() if isinstance(run, Staged))


def on_one(training: Training) -> Training:
    """Let a training be written out for one physical device."""
    several = SeveralDevices.__init__

    def without(self: Any, *args: Any, **options: Any) -> None:
        several(self, *args[:4], **options)

    SeveralDevices.__init__ = without  # type: ignore[method-assign]
    try:
        training.program._compile(training.scope, training.executor.place)
    finally:
        SeveralDevices.__init__ = several  # type: ignore[method-assign]
    return training


def both(net: Any, devices: int, **strategy: Any) -> tuple[Training, Training]:
    """A training as the physical devices allow, and the same written out for one."""
    return Training(net, devices, **strategy), on_one(Training(net, devices, **strategy))
