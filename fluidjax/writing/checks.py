"""Checks of layer arguments, and the groups of dtypes that layers accept."""

from fluidjax.data_feeder import check_dtype, check_type, check_variable_and_dtype, convert_dtype

__all__ = ["check_dtype", "check_type", "check_variable_and_dtype", "convert_dtype"]

INTS = ("int32", "int64")
FULL_FLOATS = ("float32", "float64")  # not in half precision
FULL_NUMBERS = (*FULL_FLOATS, *INTS)
FLOATS = ("float16", *FULL_FLOATS)
NUMBERS = (*FLOATS, *INTS)
FILLED = ("bool", *NUMBERS)
