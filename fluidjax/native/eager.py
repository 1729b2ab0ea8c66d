"""Eager mode as ``fluid.core`` has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidjax.base.mode import switch_tracer
from fluidjax.base.places import Place
from fluidjax.dygraph.base import grad
from fluidjax.dygraph.profiler import start_gperf_profiler, stop_gperf_profiler
from fluidjax.eager.backward.strategy import BackwardStrategy
from fluidjax.eager.variables.varbase import VarBase


def dygraph_partial_grad(
    inputs: Sequence[VarBase],
    outputs: Sequence[VarBase],
    grad_outputs: Sequence[VarBase | None],
    no_grad_vars: Sequence[VarBase],
    place: Place,
    strategy: BackwardStrategy,
    create_graph: bool,
    retain_graph: bool,
    allow_unused: bool,
    only_inputs: bool,
) -> list[VarBase | None]:
    """The gradients of `outputs` by `inputs`; see ``fluid.dygraph.grad``.

    Args:
        grad_outputs: the gradient of each output, None for ones; an empty list: all ones.
        place: accepted as in Fluid: variables say where they are.
    """
    return grad(
        list(outputs),
        list(inputs),
        list(grad_outputs) or None,
        retain_graph,
        create_graph,
        only_inputs,
        allow_unused,
        list(no_grad_vars),
        strategy,
    )


def _switch_tracer(tracer: Any) -> None:
    """Direct ops to a tracer, or to programs if it is None."""
    switch_tracer(tracer)


start_imperative_gperf_profiler = start_gperf_profiler
stop_imperative_gperf_profiler = stop_gperf_profiler
