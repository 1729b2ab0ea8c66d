"""What the ``py_layer`` ops of static programs call: the class's functions, on eager variables of the values."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from fluidjax.eager.ambient import eager
from fluidjax.eager.py_layer import PyLayerContext, as_arrays, check_count
from fluidjax.eager.values import Value
from fluidjax.eager.variables.varbase import VarBase
from fluidjax.execution.python_functions import registered, require_values
from lowering.engine.host import provide
from lowering.program import EMPTY


def older_form(layer: Any) -> bool:
    """Whether forward takes a list of arrays, rather than a context and variables."""
    return len(inspect.signature(layer.forward).parameters) == 1


def forward(number: int, values: Sequence[Any], outputs: Sequence[str]) -> tuple[list[Any], Any]:
    """(the results' values, the context) of a class for values of the lowering."""
    require_values("py_layer", values, outputs)
    made = registered(number, "py_layer")
    layer, kwargs = made.func, made.keywords  # type: ignore[attr-defined]
    context = PyLayerContext()
    variables = [None if v is None else _variable(v) for v in values]
    with eager() as tracer, tracer.no_grad():
        if older_form(layer):
            arrays = [None if v is None else v.numpy() for v in variables]
            results: Any = [VarBase(a) for a in as_arrays(layer, "forward", layer.forward(arrays))]
        else:
            results = layer.forward(context, *variables, **kwargs)
    results = list(results) if isinstance(results, (tuple, list)) else [results]
    if len(results) != len(outputs):
        raise ValueError(
            f"py_layer: {layer.__name__}.forward returned {len(results)} values, expected one for each of "
            f"{list(outputs)}; return a tuple of as many variables"
        )
    for result in results:
        if not isinstance(result, VarBase):
            raise TypeError(
                f"py_layer: {layer.__name__}.forward returned {type(result).__name__}, expected variables of eager "
                "mode; return what layers return"
            )
    return [r._array() for r in results], context


def backward(
    number: int, context: Any, values: Sequence[Any], outs: Sequence[Any], grads: Sequence[Any], wanted: Sequence[str]
) -> list[Any]:
    """The values of the inputs' gradients, None for unused ones."""
    require_values("py_layer_grad", [*values, *outs, *grads], wanted)
    layer = registered(number, "py_layer").func  # type: ignore[attr-defined]
    variables, results = [_variable(v) for v in values], [_variable(v) for v in outs]
    with eager() as tracer, tracer.no_grad():
        given = [_variable(g) if g is not None else VarBase(r.numpy() * 0) for g, r in zip(grads, results, strict=True)]
        if older_form(layer):
            arrays = [v.numpy() for v in (*variables, *results, *given)]
            found: Any = [
                None if a is None else VarBase(a)
                for a in as_arrays(layer, "backward", layer.backward(arrays), optional=True)
            ]
        else:
            found = layer.backward(context, *given)
    found = list(found) if isinstance(found, (tuple, list)) else [found]
    check_count(layer, variables, found)
    return [
        None if name == EMPTY else (VarBase(v.numpy() * 0) if g is None else g)._array()
        for name, v, g in zip(wanted, variables, found, strict=True)
    ]


def _variable(value: Any) -> VarBase:
    return VarBase._of("value", Value(value), True)


provide("py_layer", forward)
provide("py_layer_grad", backward)
