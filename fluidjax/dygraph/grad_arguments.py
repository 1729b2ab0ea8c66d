"""What ``fluid.dygraph.grad`` is given, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fluidjax.base.errors import EnforceNotMet, explain
from fluidjax.eager.backward.strategy import BackwardStrategy
from fluidjax.eager.variables.varbase import VarBase


def variables_of(given: Any, what: str) -> list[VarBase]:
    """The variables of an argument, at least one. Raises AssertionError for anything else."""
    variables = list(given) if isinstance(given, (list, tuple)) else [given]
    for var in variables:
        if not isinstance(var, VarBase):
            raise AssertionError(
                f"grad: {what} must be variables of eager mode or a list of them, received {type(var).__name__}. Pass "
                "what layers and to_variable return."
            )
    if not variables:
        raise AssertionError(f"grad: {what} is empty; expected at least one variable. Pass one.")
    return variables


def check_settings(flags: Mapping[str, Any], backward_strategy: Any) -> None:
    """Raise AssertionError for a flag that is no bool, or something other than a BackwardStrategy."""
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise AssertionError(f"grad: {name} must be True or False, received {flag!r:.60}. Pass a bool.")
    if not flags["only_inputs"]:
        raise AssertionError("only_inputs=False is not supported yet: expected True. Leave it out.")
    if backward_strategy is not None and not isinstance(backward_strategy, BackwardStrategy):
        raise AssertionError(
            f"grad: backward_strategy must be a BackwardStrategy or None, received {backward_strategy!r:.60}. Make one "
            "by fluid.dygraph.BackwardStrategy()."
        )


def check_inputs(inputs: Sequence[VarBase], constants: Sequence[VarBase]) -> None:
    """Raise EnforceNotMet for an input that can have no gradient, whether or not the outputs depend on it."""
    for var in [v for v in inputs if v.stop_gradient or any(v is constant for constant in constants)]:
        expected = "inputs whose stop_gradient is False, and which are not among no_grad_vars"
        received = "stop_gradient True" if var.stop_gradient else "one of no_grad_vars"
        remedy = "leave it out of inputs or of no_grad_vars, and set stop_gradient=False before computing the outputs"
        raise EnforceNotMet(explain(f"grad: input {var.name} has no gradient", expected, received, remedy))


def constants_of(no_grad_vars: Any) -> list[VarBase]:
    """The variables through which no gradient flows."""
    if no_grad_vars is None:
        return []
    group = isinstance(no_grad_vars, (list, tuple, set, frozenset))
    variables = list(no_grad_vars) if group else [no_grad_vars]
    return variables_of(variables, "no_grad_vars") if variables else []


def starts_of(grad_outputs: Any, roots: Sequence[VarBase]) -> list[VarBase | None]:
    """The gradient of each output, None for ones. Raises EnforceNotMet for one of another dtype than its output."""
    given = list(grad_outputs) if isinstance(grad_outputs, (list, tuple)) else [grad_outputs]
    if grad_outputs is None or not given:
        return [None] * len(roots)
    if len(given) != len(roots):
        raise AssertionError(
            f"grad: the length of grad_outputs must be equal to that of outputs: {len(given)} for {len(roots)}. Give "
            "one for each output, None for ones."
        )
    variables_of([g for g in given if g is not None] or list(roots), "grad_outputs")
    for root, start in zip(roots, given, strict=True):
        if start is not None and start.dtype != root.dtype:
            received = f"{start.dtype} for {root.dtype}"
            raise EnforceNotMet(
                explain(f"grad: the gradient of {root.name}", "the dtype of the output", received, "cast it by astype")
            )
    return given
