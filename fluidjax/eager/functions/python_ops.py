"""Eager ops that are Python functions, with gradients that are Python functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fluidjax.eager.functions.python_node import PythonNode
from fluidjax.eager.variables.varbase import VarBase


def record(
    tracer: Any, inputs: Sequence[VarBase], outputs: Sequence[VarBase], backward: Callable[[list[Any]], Sequence[Any]]
) -> None:
    """Record on the tape that `outputs` were computed from `inputs`; sets the outputs' ``stop_gradient`` accordingly.

    Args:
        backward: takes the gradients of the outputs (None if there is none) and returns those of the inputs.
    """
    flows = tracer is not None and tracer._train_mode and any(not v.stop_gradient for v in inputs)
    for output in outputs:
        output.stop_gradient = not flows
    if flows:
        PythonNode(inputs, outputs, backward)
