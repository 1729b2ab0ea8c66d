"""Python functions as layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fluidjax.data_feeder import check_type
from fluidjax.execution.python_functions import register
from fluidjax.framework import Variable
from fluidjax.layer_helper import LayerHelper

__all__ = ["py_func"]

Variables = Variable | Sequence[Variable] | None


def py_func(
    func: Callable[..., Any],
    x: Variables,
    out: Variables,
    backward_func: Callable[..., Any] | None = None,
    skip_vars_in_backward_input: Variables = None,
) -> Variables:
    """out = func(x...), called in Python each time the program runs.

    Args:
        func: takes one LoDTensor for each of ``x`` and returns one array or LoDTensor for each of ``out``.
        x: input variables: none, one or several.
        out: output variables, made by the caller with shape and data type.
        backward_func: takes x, out and the gradients of out (zeros where nothing uses an output), and returns the
            gradients of x; without it no gradient flows.
        skip_vars_in_backward_input: those of x and out that ``backward_func`` does not want.

    Returns ``out``. Raises TypeError when func is no function, ValueError for an output without shape, or a variable to
    be skipped that is neither input nor output. The op runs on the host: programs are cut there, and it cannot be
    inside a loop or branch.
    """
    variables = (list, tuple, Variable, type(None))
    check_type(x, "X", variables, "py_func")
    check_type(out, "Out", variables, "py_func")
    inputs, outputs = _several(x), _several(out)
    for var in outputs:
        if len(var.shape) == 0:
            raise ValueError(
                f"Output shapes of py_func op should be provided by users manually: {var.name!r} has none; create it "
                "with shape=[...]"
            )
    skipped = [var.name for var in _several(skip_vars_in_backward_input)]
    unknown = [name for name in skipped if name not in {var.name for var in [*inputs, *outputs]}]
    if unknown:
        raise ValueError(
            f"Variable {unknown[0]} is not found in forward inputs and outputs; skip only variables of x and out"
        )
    attrs = {
        "forward_callable_id": register(func),
        "backward_callable_id": -1 if backward_func is None else register(backward_func),
        "backward_skip_vars": skipped,
    }
    helper = LayerHelper("py_func", x=x, out=out)
    helper.append_op(type="py_func", inputs={"X": inputs}, outputs={"Out": outputs}, attrs=attrs)
    return out


def _several(variables: Variables) -> list[Variable]:
    if variables is None:
        return []
    return [variables] if isinstance(variables, Variable) else list(variables)
