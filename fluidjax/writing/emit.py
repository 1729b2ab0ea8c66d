"""Writing an op and the variables for its results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fluidjax import unique_name
from fluidjax.base.mode import current_tracer
from fluidjax.framework import Variable
from fluidjax.framework.direct import DIRECT, UNCOUNTED
from fluidjax.layer_helper import LayerHelper


def emit_again(
    op_type: str,
    inputs: Mapping[str, Any],
    slots: tuple[Any, ...],
    attrs: Mapping[str, Any],
    *,
    name: str | None = None,
    layer: str | None = None,
) -> list[Variable] | None:
    """In eager mode, the results of an op that recurs exactly as last time; None otherwise.

    Args:
        slots: output slots; (slot, n) for one with n variables.
        name, layer: as for ``emit``.
    """
    tracer = current_tracer()
    found = None if tracer is None else tracer.again(op_type, inputs, attrs, slots, op_type in DIRECT)
    if found is not None and name is None and (layer or op_type) not in UNCOUNTED:
        unique_name.generator.ids[layer or op_type] += 1  # the layer's name, which is counted
    return found


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
    """Append an op with a single result and return the result.

    Args:
        op_type, inputs, attrs: the op.
        dtype: dtype of the result.
        name: the layer's name; ``layer``: its type (default the op type), from which a name is generated otherwise.
        slot: the output slot.
        out: an existing variable to use for the result.
        stop_gradient: set on a new result, in eager mode too.
        act: activation applied to the result.
    """
    if out is None and act is None:
        found = emit_again(op_type, inputs, (slot,), attrs or {}, name=name, layer=layer)
        if found is not None:
            return _stopped(found, [stop_gradient])[0]
    helper = LayerHelper(layer or op_type, name=name, act=act)
    stop_gradient = stop_gradient and out is None
    if out is None:
        out = helper.create_variable_for_type_inference(dtype, stop_gradient=stop_gradient)
    helper.append_op(type=op_type, inputs=dict(inputs), outputs={slot: [out]}, attrs=dict(attrs or {}))
    return helper.append_activation(_stopped([out], [stop_gradient])[0])


def emit_many(
    op_type: str,
    inputs: Mapping[str, Any],
    outputs: Sequence[tuple[str, Any, bool]],
    attrs: Mapping[str, Any] | None = None,
    *,
    name: str | None = None,
    layer: str | None = None,
) -> list[Variable]:
    """Append an op with several results, given as (slot, dtype, stop_gradient) in order; returns them."""
    stops = [stop for _, _, stop in outputs]
    found = emit_again(op_type, inputs, tuple([slot for slot, _, _ in outputs]), attrs or {}, name=name, layer=layer)
    if found is not None:
        return _stopped(found, stops)
    helper = LayerHelper(layer or op_type, name=name)
    made = [helper.create_variable_for_type_inference(dtype, stop_gradient=stop) for _, dtype, stop in outputs]
    bound = {slot: [var] for (slot, _, _), var in zip(outputs, made, strict=True)}
    helper.append_op(type=op_type, inputs=dict(inputs), outputs=bound, attrs=dict(attrs or {}))
    return _stopped(made, stops)


def _stopped(results: list[Variable], stops: Sequence[bool]) -> list[Variable]:
    """The results, of which those marked in `stops` block gradients: in eager mode the op has decided it anew."""
    for result, stop in zip(results, stops, strict=True):
        if stop:
            result.stop_gradient = True
    return results
