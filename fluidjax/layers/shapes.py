"""Shape arguments that may hold Variables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidjax.enums import VarType
from fluidjax.framework import Variable
from fluidjax.layer_helper import LayerHelper


def contains_variable(values: Any) -> bool:
    """Whether a list of numbers has a Variable among them."""
    return any(isinstance(v, Variable) for v in values)


def constants(value: int, dtype: str = "int32") -> Variable:
    """A Variable [1] that holds one number known now."""
    from fluidjax.layers.tensor import fill_constant

    return fill_constant([1], dtype, value, force_cpu=True)


def as_tensors(helper: LayerHelper, values: Sequence[Any], dtype: str = "int32") -> list[Variable]:
    """Each number or Variable of a list as a Variable [1]; the numbers' are temporaries of the layer."""
    from fluidjax.layers.tensor import fill_constant

    tensors = []
    for value in values:
        if isinstance(value, Variable):
            value.stop_gradient = True
            tensors.append(value)
        else:
            made = helper.create_variable_for_type_inference(dtype)
            tensors.append(fill_constant([1], dtype, value, force_cpu=True, out=made))
    return tensors


def as_attr(values: Sequence[Any], unknown: int = -1) -> list[int]:
    """The numbers of a list, ``unknown`` in place of each Variable."""
    return [unknown if isinstance(v, Variable) else int(v) for v in values]


def _as_int32(value: Variable) -> Variable:
    from fluidjax.layers.tensor import cast

    return cast(value, "int32") if value.dtype == VarType.INT64 else value


def shape_argument(
    helper: LayerHelper, inputs: dict[str, Any], attrs: dict[str, Any], shape: Any, op_type: str
) -> None:
    """Put a shape on an op: attribute ``shape``, input ShapeTensor (a Variable) or ShapeTensorList (a mixed list)."""
    if isinstance(shape, Variable):
        shape.stop_gradient = True
        inputs["ShapeTensor"] = _as_int32(shape)
        return
    if not len(shape):
        raise AssertionError(f"The size of argument(shape) of {op_type} can't be zero; pass at least one dim")
    attrs["shape"] = as_attr(shape)
    if any(not isinstance(v, Variable) and v < 0 for v in shape):
        raise ValueError(
            f"Each value of attribute 'shape' of {op_type} is expected to be no less than 0, received {list(shape)}."
            " Take unknown sizes from a tensor with fill_constant_batch_size_like or fluid.layers.shape."
        )
    if contains_variable(shape):
        tensors = []
        for value in shape:
            if isinstance(value, Variable):
                value.stop_gradient = True
                tensors.append(_as_int32(value))
            else:
                tensors.append(constants(int(value)))
        inputs["ShapeTensorList"] = tensors
