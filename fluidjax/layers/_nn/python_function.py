"""Python functions as layers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from fluidjax import unique_name
from fluidjax.base.enums import VarType
from fluidjax.base.errors import ArgumentError
from fluidjax.data_feeder import check_type
from fluidjax.execution.python_functions import register
from fluidjax.framework import Variable, in_dygraph_mode
from fluidjax.layer_helper import LayerHelper

__all__ = ["py_func", "py_layer"]

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
        func: receives a LoDTensor for each of ``x`` and returns an array or LoDTensor for each of ``out``.
        x: input variables: none, one or several.
        out: output variables, created by the caller with shape and dtype.
        backward_func: receives x, out and the gradients of out (zeros for unused outputs), and returns the
            gradients of x; without it, no gradient is propagated.
        skip_vars_in_backward_input: variables of x and out not passed to ``backward_func``.

    Returns ``out``. Raises TypeError if func is not callable, ValueError for an output without a shape or a skipped
    variable that is neither input nor output. The op runs on the host, so the program is split there; it cannot be used
    inside a loop or branch.
    """
    variables = (list, tuple, Variable, type(None))
    check_type(x, "X", variables, "py_func")
    check_type(out, "Out", variables, "py_func")
    inputs, outputs = _several(x), _several(out)
    _require_shapes("py_func", outputs)
    skipped = [var.name for var in _several(skip_vars_in_backward_input)]
    unknown = [name for name in skipped if name not in {var.name for var in [*inputs, *outputs]}]
    if unknown:
        raise ArgumentError(
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


def py_layer(layer: Any, x: Variables, out: Variables = None, **kwargs: Any) -> Variables:
    """out = forward(x...) of a PyLayer, called in Python each time the program runs; its backward is the gradient.

    Args:
        layer: a subclass of ``fluid.dygraph.PyLayer``, in either style. Its methods receive eager variables, or
            arrays in the older style.
        x: input variables: one or several.
        out: output variables, created by the caller with shape and dtype; not needed in eager mode.
        kwargs: other arguments of ``forward``.

    Returns ``out``; in eager mode, the result of ``layer.apply``. Raises TypeError if layer is not a class,
    ValueError for an output without a shape. The op runs on the host, so the program is split there; it cannot be used
    in a loop or branch. It is saved under the class name: bind the class to a loaded program with
    ``fluid.io.bind_py_layer``.
    """
    if not isinstance(layer, type) or not hasattr(layer, "apply"):
        raise TypeError(
            f"py_layer: the layer is {layer!r}; expected a subclass of fluid.dygraph.PyLayer. Pass the class itself."
        )
    inputs, outputs = _several(x), _several(out)
    if in_dygraph_mode():
        return layer.apply(*inputs, **kwargs)
    check_type(x, "X", (list, tuple, Variable), "py_layer")
    check_type(out, "Out", (list, tuple, Variable), "py_layer")
    _require_shapes("py_layer", outputs)
    attrs = {
        "forward_callable_id": register(functools.partial(layer, **kwargs)),
        "layer_name": f"{layer.__module__}.{layer.__qualname__}",
    }
    helper = LayerHelper("py_layer", x=x, out=out)
    context = helper.create_variable(name=unique_name.generate("py_layer_ctx"), type=VarType.RAW)
    context.stop_gradient = True
    helper.append_op(type="py_layer", inputs={"X": inputs}, outputs={"Out": outputs, "Ctx": [context]}, attrs=attrs)
    return out


def _require_shapes(layer: str, outputs: Sequence[Variable]) -> None:
    for var in outputs:
        if len(var.shape) == 0:
            raise ArgumentError(
                f"Output shapes of {layer} op should be provided by users manually: {var.name!r} has none; create it "
                "with shape=[...]"
            )


def _several(variables: Variables) -> list[Variable]:
    if variables is None:
        return []
    return [variables] if isinstance(variables, Variable) else list(variables)
