"""Argument checks of the sequence layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidjax.base.enums import VarType
from fluidjax.framework import Variable, in_dygraph_mode

_DTYPE_NAMES = {
    VarType.BOOL: "bool",
    VarType.INT32: "int32",
    VarType.INT64: "int64",
    VarType.FP16: "float16",
    VarType.FP32: "float32",
    VarType.FP64: "float64",
    VarType.INT8: "int8",
    VarType.UINT8: "uint8",
}


def refuse_eager(layer: str) -> None:
    """Raise AssertionError in eager mode, where variables have no LoD."""
    if in_dygraph_mode():
        raise AssertionError(
            f"sequence layer is not supported in dygraph mode yet: {layer} needs a LoD, and eager variables have none. "
            "Expected static mode. Pad the sequences and mask them, or build a Program outside the guard."
        )


def ragged(value: Any, arg: str, layer: str, dtypes: Sequence[str] = ()) -> Variable:
    """Like ``variable``, for arguments that must have a LoD: raises AssertionError in eager mode."""
    refuse_eager(layer)
    return variable(value, arg, layer, dtypes)


def variable(value: Any, arg: str, layer: str, dtypes: Sequence[str] = ()) -> Variable:
    """Return ``value``; raise TypeError unless it is a Variable, with one of ``dtypes`` if any are given."""
    if not isinstance(value, Variable):
        raise TypeError(
            f"The type of '{arg}' in {layer} must be Variable, but received {type(value).__name__}. Pass what a layer"
            " such as fluid.data or fc returned."
        )
    name = _DTYPE_NAMES.get(value.dtype, str(value.dtype))
    if dtypes and name not in dtypes:
        raise TypeError(
            f"The data type of '{arg}' in {layer} must be {list(dtypes)}, but received {name} (variable"
            f" {value.name!r}). Cast it with fluid.layers.cast."
        )
    return value


def variables(value: Any, arg: str, layer: str, dtypes: Sequence[str] = ()) -> list[Variable]:
    """Return a list of Variables; raise TypeError unless ``value`` is one."""
    if not isinstance(value, list):
        raise TypeError(
            f"The type of '{arg}' in {layer} must be list, but received {type(value).__name__}. Pass [x, y, ...]."
        )
    return [variable(v, arg, layer, dtypes) for v in value]


def pair(value: Any) -> list[int]:
    """An int as a list of two; a list or tuple as a list."""
    return list(value) if isinstance(value, (list, tuple)) else [value, value]
