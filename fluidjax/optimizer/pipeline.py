"""PipelineOptimizer: splits a program into sections."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fluidjax.framework import Operator, Program, Variable
from fluidjax.optimizer.base import Optimizer, Pair
from fluidjax.optimizer.eager import refuse


class PipelineOptimizer:
    """Wraps an optimizer and records how the program may be split into sections.

    The sections affect execution, not results: the program computes the same as with the wrapped optimizer alone.
    XLA schedules the whole program, so ``Executor.run`` does not split it; the settings remain on the program
    (``program._pipeline_opt``) for tools that read them.

    Args:
        optimizer: the optimizer that updates the parameters.
        cut_list: the Variables that cross each cut.
        place_list: the device of each section.
        concurrency_list: the number of threads of each section.
        queue_size: number of batches queued between sections.
        sync_steps: number of steps between synchronisations of a section's threads.
        start_cpu_core_id: the first CPU core to use.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        cut_list: list[list[Variable]] | None = None,
        place_list: list[Any] | None = None,
        concurrency_list: list[int] | None = None,
        queue_size: int = 30,
        sync_steps: int = 1,
        start_cpu_core_id: int = 0,
    ) -> None:
        refuse("PipelineOptimizer")
        self._optimizer = optimizer
        self._cut_list = cut_list or []
        self._place_list = place_list or []
        self._concurrency_list = concurrency_list or []
        self._queue_size = queue_size
        self._sync_steps = sync_steps
        self._start_cpu_core_id = start_cpu_core_id

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Iterable[Variable | str] | None = None,
        no_grad_set: Iterable[Variable | str] | None = None,
    ) -> tuple[list[Operator], list[Pair]]:
        """Call ``minimize`` of the wrapped optimizer and record the settings on the program."""
        result = self._optimizer.minimize(loss, startup_program, parameter_list, no_grad_set)
        loss.block.program._pipeline_opt = {
            "cut_list": [[var.name for var in cut] for cut in self._cut_list],
            "place_list": list(self._place_list),
            "concurrency_list": list(self._concurrency_list),
            "queue_size": self._queue_size,
            "sync_steps": self._sync_steps,
            "start_cpu_core_id": self._start_cpu_core_id,
        }
        return result
