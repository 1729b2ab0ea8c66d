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
        layer: a subclass of ``fluid.dygraph.PyLayer``, of either form. Its functions are given eager variables, or
            arrays in the older form.
        x: input variables: one or several.
        out: output variables, made by the caller with shape and data type; in eager mode they are not needed.
        kwargs: other arguments of ``forward``.

    Returns ``out``; in eager mode what ``layer.apply`` does. Raises TypeError when layer is no class, ValueError for an
    output without shape. The op runs on the host: programs are cut there, and it cannot be in a loop or branch. It is
    saved with the name of the class: a loaded program has to be given the class by ``fluid.io.bind_py_layer``.
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
