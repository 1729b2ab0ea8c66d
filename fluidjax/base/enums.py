"""Fluid's enumerations: variable types and dtypes, attribute types, op roles.

Members are ints, so that ``VarType.FP32 == 5`` holds and protobuf accepts them; they print as in Fluid
(``VarType.FP32``).
"""

from __future__ import annotations

import enum

import ml_dtypes
import numpy as np


class FluidEnum(enum.IntEnum):
    """Whole numbers with names, which print as Fluid prints them."""

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    __repr__ = __str__


class VarType(FluidEnum):
    """The type of a variable (LOD_TENSOR, SELECTED_ROWS ...) or of its elements (FP32, INT64 ...).

    Members from BF16 on come from Paddle 2.
    """

    BOOL = 0
    INT16 = 1
    INT32 = 2
    INT64 = 3
    FP16 = 4
    FP32 = 5
    FP64 = 6
    LOD_TENSOR = 7
    SELECTED_ROWS = 8
    FEED_MINIBATCH = 9
    FETCH_LIST = 10
    STEP_SCOPES = 11
    LOD_RANK_TABLE = 12
    LOD_TENSOR_ARRAY = 13
    PLACE_LIST = 14
    READER = 15
    RAW = 17
    TUPLE = 18
    SIZE_T = 19
    UINT8 = 20
    INT8 = 21
    BF16 = 22
    COMPLEX64 = 23
    COMPLEX128 = 24
    STRING = 25
    STRINGS = 26
    VOCAB = 27
    FEED_LIST = 28
    PSTRING = 29
    SPARSE_COO = 30
    SPARSE_CSR = 31


class AttrType(FluidEnum):
    """The type of an op's attribute; members from FLOAT64S on come from Paddle 2."""

    INT = 0
    FLOAT = 1
    STRING = 2
    INTS = 3
    FLOATS = 4
    STRINGS = 5
    BOOL = 6
    BOOLS = 7
    BLOCK = 8
    LONG = 9
    BLOCKS = 10
    LONGS = 11
    FLOAT64S = 12
    VAR = 13
    VARS = 14
    FLOAT64 = 15
    SCALAR = 16
    SCALARS = 17


class OpRole(FluidEnum):
    """The role of an op in a program: bits, combined with ``|`` (the loss op is ``Forward | Loss``)."""

    Forward = 0x0000
    Backward = 0x0001
    Optimize = 0x0002
    RPC = 0x0004
    Dist = 0x0008
    LRSched = 0x0010
    Loss = 0x0100


_NUMPY = {
    VarType.BOOL: np.dtype(np.bool_),
    VarType.INT16: np.dtype(np.int16),
    VarType.INT32: np.dtype(np.int32),
    VarType.INT64: np.dtype(np.int64),
    VarType.FP16: np.dtype(np.float16),
    VarType.FP32: np.dtype(np.float32),
    VarType.FP64: np.dtype(np.float64),
    VarType.SIZE_T: np.dtype(np.uint64),
    VarType.UINT8: np.dtype(np.uint8),
    VarType.INT8: np.dtype(np.int8),
    VarType.BF16: np.dtype(ml_dtypes.bfloat16),
    VarType.COMPLEX64: np.dtype(np.complex64),
    VarType.COMPLEX128: np.dtype(np.complex128),
}
# Scripts cannot declare these; Paddle 2's programs hold complex numbers.
_UNDECLARED = (VarType.SIZE_T, VarType.COMPLEX64, VarType.COMPLEX128)
_FROM_NUMPY = {dtype: var_type for var_type, dtype in _NUMPY.items() if var_type not in _UNDECLARED}
# Fluid keeps half precision as raw 16-bit words: a uint16 array is read as FP16.
_FROM_NUMPY[np.dtype(np.uint16)] = VarType.FP16

# Whole numbers and truth values.
INTEGERS = frozenset((VarType.BOOL, VarType.INT8, VarType.UINT8, VarType.INT16, VarType.INT32, VarType.INT64))


def to_var_type(dtype: object) -> VarType:
    """The dtype for a NumPy dtype, its name, or a Fluid dtype.

    Raises TypeError if NumPy has no such dtype, ValueError if Fluid has none.
    """
    if isinstance(dtype, VarType):
        return dtype
    if isinstance(dtype, int) and not isinstance(dtype, bool):
        return VarType(dtype)
    try:
        return _FROM_NUMPY[np.dtype(dtype)]  # type: ignore[call-overload]
    except (KeyError, TypeError) as error:
        names = ", ".join(sorted(str(known) for known in _FROM_NUMPY))
        kind = ValueError if isinstance(error, KeyError) else TypeError
        raise kind(
            f"Not supported numpy dtype {dtype!r}: Fluid has no element type for it. Expected one of {names}."
        ) from None


def to_numpy_dtype(dtype: object) -> np.dtype:
    """The NumPy dtype of a Fluid dtype (``VarType.FP32`` or 5 -> float32)."""
    try:
        return _NUMPY[VarType(dtype)]  # type: ignore[arg-type]  # what is no number is told below
    except (KeyError, ValueError):
        known = ", ".join(map(str, _NUMPY))
        raise ValueError(
            f"{dtype!r} is not an element type\n  expected: one of {known}\n  received: {dtype!r}\n"
            "  what to do: declare the variable with a data type; save the program again if it is read"
        ) from None


def is_floating(dtype: object) -> bool:
    """Whether a dtype is floating-point."""
    return to_var_type(dtype) in (VarType.FP16, VarType.FP32, VarType.FP64, VarType.BF16)
