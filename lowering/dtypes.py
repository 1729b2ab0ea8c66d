"""Fluid's data type numbers (``VarType.Type``) and the NumPy dtypes they stand for."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

BOOL, INT16, INT32, INT64, FP16, FP32, FP64 = range(7)
SIZE_T, UINT8, INT8, BF16, COMPLEX64, COMPLEX128 = 19, 20, 21, 22, 23, 24

# Kinds of variables, which share the enumeration with the data types.
LOD_TENSOR, SELECTED_ROWS, FEED_MINIBATCH, FETCH_LIST, STEP_SCOPES = 7, 8, 9, 10, 11
LOD_RANK_TABLE, LOD_TENSOR_ARRAY, PLACE_LIST, READER, RAW, TUPLE = 12, 13, 14, 15, 17, 18

_NUMPY = {
    BOOL: np.dtype(np.bool_),
    INT16: np.dtype(np.int16),
    INT32: np.dtype(np.int32),
    INT64: np.dtype(np.int64),
    FP16: np.dtype(np.float16),
    FP32: np.dtype(np.float32),
    FP64: np.dtype(np.float64),
    SIZE_T: np.dtype(np.uint64),
    UINT8: np.dtype(np.uint8),
    INT8: np.dtype(np.int8),
    BF16: np.dtype(ml_dtypes.bfloat16),
    COMPLEX64: np.dtype(np.complex64),
    COMPLEX128: np.dtype(np.complex128),
}
_FLUID = {dtype: number for number, dtype in _NUMPY.items()}


def to_numpy(number: int) -> np.dtype:
    """The NumPy dtype of Fluid's data type ``number``; ValueError if there is none."""
    try:
        return _NUMPY[int(number)]
    except KeyError:
        raise ValueError(
            f"{number} is no data type of Fluid\n"
            f"  expected: one of {sorted(_NUMPY)} (FP32 is {FP32}, INT64 is {INT64})\n  received: {number}\n"
            "  what to do: declare the variable with a data type; save the program again if it is read"
        ) from None


def from_numpy(dtype: Any) -> int:
    """Fluid's number for a NumPy dtype (or anything ``np.dtype`` accepts)."""
    try:
        return _FLUID[np.dtype(dtype)]
    except (KeyError, TypeError):
        raise ValueError(
            f"{dtype} is not a dtype that Fluid has; expected one of {[str(d) for d in _FLUID]}; cast the value first"
        ) from None


def is_float(dtype: Any) -> bool:
    """Whether values of this dtype have gradients (float16, bfloat16, float32, float64)."""
    return np.dtype(dtype) in (_NUMPY[FP16], _NUMPY[FP32], _NUMPY[FP64], _NUMPY[BF16])
