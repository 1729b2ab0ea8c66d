"""Writing one op and the variables for its results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fluidjax.framework import Variable
from fluidjax.layer_helper import LayerHelper


def emit(
    op_type: str,
    inputs: Mapping[str, Any],
    dtype: Any,
    attrs: Mapping[str, Any] | None = None,
    *,
    name: str | None = None,
    layer: str | None = None,
    slot: str = "Out",
    out: Variable | None = None,
    stop_gradient: bool = False,
    act: str | None = None,
) -> Variable:
    """Append an op with one result and return it.

    Args:
        op_type, inputs, attrs: the op.
        dtype: element type of the result.
        name: the layer's name; ``layer``: its kind (default the op type), which names it otherwise.
        slot: the output slot.
        out: an existing variable for the result.
        stop_gradient: of a new result.
        act: activation applied to the result.
    """
    helper = LayerHelper(layer or op_type, name=name, act=act)
    if out is None:
        out = helper.create_variable_for_type_inference(dtype, stop_gradient=stop_gradient)
    helper.append_op(type=op_type, inputs=dict(inputs), outputs={slot: [out]}, attrs=dict(attrs or {}))
    if stop_gradient:  # in eager mode the op decided
        out.stop_gradient = True
    return helper.append_activation(out)


def emit_many(
    op_type: str,
    inputs: Mapping[str, Any],
    outputs: Sequence[tuple[str, Any, bool]],
    attrs: Mapping[str, Any] | None = None,
    *,
    name: str | None = None,
    layer: str | None = None,
) -> list[Variable]:
    """Append an op with several results, given as (slot, element type, stop_gradient) in order; returns them."""
    helper = LayerHelper(layer or op_type, name=name)
    made = [helper.create_variable_for_type_inference(dtype, stop_gradient=stop) for _, dtype, stop in outputs]
    bound = {slot: [var] for (slot, _, _), var in zip(outputs, made, strict=True)}
    helper.append_op(type=op_type, inputs=dict(inputs), outputs=bound, attrs=dict(attrs or {}))
    for var, (_, _, stop) in zip(made, outputs, strict=True):
        if stop:  # in eager mode the op decided
            var.stop_gradient = True
    return made
