"""Argument checks shared by the control-flow layers; errors say what was received, what is accepted and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidjax.base.enums import VarType
from fluidjax.framework import Variable
from fluidjax.writing.checks import convert_dtype as dtype_name

__all__ = [
    "VarType",
    "dtype_name",
    "require_array",
    "require_callable",
    "require_condition",
    "require_dtype",
    "require_variable",
]


def require_variable(value: Any, arg: str, layer: str) -> Variable:
    """Return ``value`` if it is a Variable; raise TypeError otherwise."""
    if not isinstance(value, Variable):
        raise TypeError(
            f"{layer}: argument '{arg}' is not a Variable. Expected a fluid Variable, received "
            f"{type(value).__name__}. Make one with layers.fill_constant, layers.assign or layers.data."
        )
    return value


def require_dtype(value: Any, arg: str, layer: str, allowed: Sequence[str]) -> Variable:
    """Return ``value`` if it is a Variable with one of the ``allowed`` dtypes; raise TypeError otherwise."""
    require_variable(value, arg, layer)
    got = dtype_name(value.dtype)
    if got not in allowed:
        raise TypeError(
            f"{layer}: argument '{arg}' ({value.name}) has a dtype this layer does not take. Expected one of "
            f"{', '.join(allowed)}, received {got}. Convert it with layers.cast."
        )
    return value


def require_array(value: Any, arg: str, layer: str) -> Variable:
    """Return ``value`` if it is a LOD_TENSOR_ARRAY variable; raise TypeError otherwise."""
    if not isinstance(value, Variable) or value.type != VarType.LOD_TENSOR_ARRAY:
        got = f"the tensor {value.name}" if isinstance(value, Variable) else type(value).__name__
        raise TypeError(
            f"{layer}: argument '{arg}' is not a tensor array. Expected a LOD_TENSOR_ARRAY variable, received "
            f"{got}. Make one with layers.create_array or layers.array_write."
        )
    return value


def require_condition(value: Any, layer: str) -> Variable:
    """Return ``value`` if it is a boolean scalar; raise TypeError otherwise."""
    require_variable(value, "cond", layer)
    if value.dtype != VarType.BOOL:
        raise TypeError(
            f"{layer}: the condition {value.name} is not boolean. Expected dtype bool, received "
            f"{dtype_name(value.dtype)}. Compare with layers.less_than, layers.equal, ..."
        )
    count = 1
    for dim in value.shape:
        count *= abs(dim)
    if count != 1:
        raise TypeError(
            f"{layer}: the condition {value.name} is not a single value. Expected shape [1], received "
            f"{list(value.shape)}. Reduce it with layers.reduce_all or layers.reduce_any."
        )
    return value


def require_callable(value: Any, arg: str, layer: str) -> Any:
    """Return ``value`` if it is callable; raise TypeError otherwise."""
    if not callable(value):
        raise TypeError(
            f"{layer}: argument '{arg}' cannot be called. Expected a function, received "
            f"{type(value).__name__}. Wrap the layers in a function or lambda."
        )
    return value
