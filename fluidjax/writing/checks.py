"""Checks of layer arguments, and the groups of dtypes that layers accept."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fluidjax.base.enums import VarType
from fluidjax.data_feeder import check_dtype, check_type, check_variable_and_dtype, convert_dtype
from fluidjax.framework import Variable

__all__ = ["check_dtype", "check_type", "check_variable_and_dtype", "common_dtype", "convert_dtype", "only"]

INTS = ("int32", "int64")
FULL_FLOATS = ("float32", "float64")  # not in half precision
FULL_NUMBERS = (*FULL_FLOATS, *INTS)
FLOATS = ("float16", *FULL_FLOATS)
NUMBERS = (*FLOATS, *INTS)
FILLED = ("bool", *NUMBERS)


def only(input: Any, layer: str | None = None) -> Any:
    """The item of a list of one, else ``input``: layers of Fluid that hand their input on unchecked take it so.

    Raises TypeError, if a ``layer`` is named, for anything but a Variable.
    """
    one = input[0] if isinstance(input, (list, tuple)) and len(input) == 1 else input
    if layer is not None:
        check_type(one, "input", Variable, layer)
    return one


def common_dtype(layer: str, inputs: Iterable[Variable]) -> VarType:
    """The dtype of all inputs. Raises ValueError if they differ."""
    first, *others = [each.dtype for each in inputs]
    for dtype in others:
        if dtype != first:
            raise ValueError(
                f"layer {layer}: Data Type mismatch: {first} to {dtype} among its inputs. Cast them to one dtype with "
                "fluid.layers.cast."
            )
    return first
