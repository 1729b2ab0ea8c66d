"""PipelineOptimizer: an optimizer whose program is cut into sections, which work on different batches at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fluidjax.base.errors import explain
from fluidjax.base.places import CPUPlace, CUDAPlace, Place
from fluidjax.framework import Operator, Program, Variable
from fluidjax.optimizer.base import Optimizer, Pair
from fluidjax.optimizer.eager import refuse
from fluidjax.optimizer.sections import sections


class PipelineOptimizer:
    """Wraps an optimizer and cuts its program into sections, each of which runs on a device of its own.

    ``k`` cuts make ``2 k - 1`` sections: ``k`` of the forward pass, the last of them with the loss and its gradients,
    and the backward pass of the others, from the last to the first (see ``fluidjax.optimizer.sections``). A section
    updates the parameters of its part with each batch. ``Executor.train_from_dataset`` lets the sections work on
    different batches at once (see ``fluidjax.execution.devices.pipeline``); ``Executor.run`` runs the program uncut, on one
    device.

    Args:
        optimizer: the optimizer that updates the parameters.
        cut_list: for each cut the Variables that go over it; the last one holds the loss. None or one cut: one section.
        place_list: where each section runs; default ``CPUPlace()`` for all. The devices of a CPU that XLA was told to
            make several of (``XLA_FLAGS=--xla_force_host_platform_device_count=n``) are dealt out in order. A section
            of the backward pass runs where the section of the forward pass does whose parameters it updates.
        concurrency_list: how many threads run each section in Fluid. It changes
            nothing: XLA uses all cores for one batch.
        queue_size: how many batches are on their way at most. With 1 the losses are those of the uncut program;
            otherwise section ``i`` of the forward pass sees a batch before it is updated by the
            ``min(queue_size, k - i) - 1`` batches before.
        sync_steps: how often Fluid averages the parameters of several pipelines. It changes nothing: they share them.
        start_cpu_core_id: the first CPU core that Fluid uses. It changes nothing: the system places threads.

    Raises:
        ValueError: there are not as many places, or concurrencies, as sections.

    Examples:
        >>> x, y = fluid.data("x", [None, 4]), fluid.data("y", [None, 1])
        >>> hidden = fluid.layers.fc(x, 8, act="relu")
        >>> loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y))
        >>> optimizer = fluid.optimizer.PipelineOptimizer(fluid.optimizer.SGD(0.1), cut_list=[[hidden], [loss]])
        >>> _ = optimizer.minimize(loss)
        >>> len(loss.block.program._pipeline_opt["section_program_list"])
        3
    """

    def __init__(
        self,
        optimizer: Optimizer,
        cut_list: Sequence[Sequence[Variable]] | None = None,
        place_list: Sequence[Place] | None = None,
        concurrency_list: Sequence[int] | None = None,
        queue_size: int = 30,
        sync_steps: int = 1,
        start_cpu_core_id: int = 0,
    ) -> None:
        refuse("PipelineOptimizer")
        self._optimizer = optimizer
        self._cut_list = [list(cut) for cut in cut_list or []]
        self._place_list = place_list
        self._concurrency_list = concurrency_list
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
        """As the wrapped optimizer's; the sections are noted on the program (``_pipeline_opt``)."""
        result = self._optimizer.minimize(loss, startup_program, parameter_list, no_grad_set)
        program = loss.block.program
        found = sections(program, self._cut_list)
        places = _one_each("place_list", self._place_list, CPUPlace(), len(found))
        program._pipeline_opt = {
            "trainer": "PipelineTrainer",
            "device_worker": "Section",
            "section_program_list": found,
            "place_list": places,
            "concurrency_list": _one_each("concurrency_list", self._concurrency_list, 1, len(found)),
            "queue_size": self._queue_size,
            "start_cpu_core_id": self._start_cpu_core_id,
            "sync_steps": self._sync_steps,
            "param_need_sync": _on_accelerators(program, found, places),
        }
        return result


def _one_each(name: str, given: Sequence[Any] | None, default: Any, count: int) -> list[Any]:
    """What is given for each of ``count`` sections."""
    found = [default] * count if given is None else list(given)
    if len(found) != count:
        raise ValueError(
            explain(
                f"PipelineOptimizer: {name} does not fit the sections",
                f"{count}: of k cuts there are 2 k - 1 sections, forwards and then backwards",
                f"{len(found)}",
                f"give {name} one entry for each section",
            )
        )
    return found


def _on_accelerators(program: Program, found: Sequence[dict[str, Any]], places: Sequence[Place]) -> list[str]:
    """The parameters in sections at an accelerator, section by section."""
    known = {p.name for p in program.all_parameters()}
    used = (s["program"].global_block().vars for s, p in zip(found, places, strict=True) if isinstance(p, CUDAPlace))
    return [name for names in used for name in names if name in known]
