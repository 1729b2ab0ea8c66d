"""Checks of layer arguments, and the groups of element types that layers accept."""

from fluidjax.data_feeder import check_dtype, check_type, check_variable_and_dtype, convert_dtype

__all__ = ["check_dtype", "check_type", "check_variable_and_dtype", "convert_dtype"]

FLOATS = ("float16", "float32", "float64")
NUMBERS = (*FLOATS, "int32", "int64")
FILLED = ("bool", *FLOATS, "int32", "int64")
