"""Checks of layer arguments, with the messages' three parts: what is wrong, what was expected, what to do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from fluidjax.enums import VarType, to_numpy_dtype, to_var_type
from fluidjax.framework import Variable

__all__ = ["check_dtype", "check_type", "check_variable_and_dtype", "convert_dtype"]

FLOATS = ("float16", "float32", "float64")
NUMBERS = (*FLOATS, "int32", "int64")
INTEGERS = ("int32", "int64")
ANY = ("bool", *NUMBERS)


def convert_dtype(dtype: Any) -> str:
    """The name of an element type given as VarType, NumPy dtype or name; ValueError when Fluid has none such."""
    if isinstance(dtype, VarType):
        return "bfloat16" if dtype == VarType.BF16 else to_numpy_dtype(dtype).name
    try:
        return np.dtype(to_numpy_dtype(to_var_type(dtype))).name
    except ValueError as error:
        raise ValueError(
            f"dtype must be any of [bool, float16, float32, float64, int8, int16, int32, int64, uint8], but received "
            f"{dtype!r}; pass one of them"
        ) from error


def check_variable_and_dtype(
    input: Any, input_name: str, expected_dtype: Iterable[str] | str, op_name: str, extra_message: str = ""
) -> None:
    """Raise TypeError unless ``input`` is a Variable of one of the element types."""
    check_type(input, input_name, Variable, op_name, extra_message)
    check_dtype(input.dtype, input_name, expected_dtype, op_name, extra_message)


def check_type(
    input: Any, input_name: str, expected_type: type | tuple[type, ...], op_name: str, extra_message: str = ""
) -> None:
    """Raise TypeError unless ``input`` is an instance of ``expected_type``."""
    if isinstance(input, expected_type):
        return
    expected = expected_type if isinstance(expected_type, tuple) else (expected_type,)
    names = " or ".join(t.__name__ for t in expected)
    raise TypeError(
        f"The type of '{input_name}' in {op_name} must be {names}, but received {type(input).__name__}."
        f" Pass a {names}. {extra_message}".rstrip()
    )


def check_dtype(
    input_dtype: Any, input_name: str, expected_dtype: Iterable[str] | str, op_name: str, extra_message: str = ""
) -> None:
    """Raise TypeError unless the element type is one of those expected."""
    expected = (expected_dtype,) if isinstance(expected_dtype, str) else tuple(expected_dtype)
    got = convert_dtype(input_dtype)
    if got in expected:
        return
    raise TypeError(
        f"The data type of '{input_name}' in {op_name} must be one of {', '.join(expected)}, but received {got}."
        f" Cast it with fluid.layers.cast. {extra_message}".rstrip()
    )
