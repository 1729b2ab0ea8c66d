"""Names removed since NumPy 1.16 to 1.23: aliases of Python's types, aliases of other names, small functions."""

from __future__ import annotations

import functools
import math
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

_TYPES = {"int": int, "float": float, "complex": complex, "object": object, "str": str, "unicode": str, "long": int}

# The name that stayed: those that went.
_RENAMED = {
    "all": "alltrue",
    "any": "sometrue",
    "asmatrix": "mat",
    "bool_": "bool8 bool",
    "bytes_": "string_ bytes0",
    "clongdouble": "clongfloat longcomplex",
    "complex128": "complex_ cfloat",
    "complex64": "singlecomplex",
    "cumprod": "cumproduct",
    "float64": "float_",
    "inf": "Inf Infinity PINF infty",
    "intp": "int0",
    "longdouble": "longfloat",
    "nan": "NaN NAN",
    "object_": "object0",
    "prod": "product",
    "round": "round_",
    "str_": "unicode_ str0",
    "trapezoid": "trapz",
    "uintp": "uint0",
    "void": "void0",
    "vstack": "row_stack",
}

_EXCEPTIONS = "AxisError ComplexWarning ModuleDeprecationWarning RankWarning TooHardError VisibleDeprecationWarning"


def alen(a: Any) -> int:
    """The length of the first axis; 1 for a number."""
    return len(np.atleast_1d(a))


def asfarray(a: Any, dtype: Any = np.float64) -> np.ndarray:
    """Convert to an array of floats."""
    return np.asarray(a, dtype if np.issubdtype(dtype, np.inexact) else np.float64)


def asscalar(a: np.ndarray) -> Any:
    """The only element as a Python number."""
    return a.item()


def in1d(ar1: Any, ar2: Any, assume_unique: bool = False, invert: bool = False) -> np.ndarray:
    """Which elements of the flattened `ar1` are in `ar2`."""
    return np.isin(np.ravel(ar1), ar2, assume_unique, invert)


def msort(a: Any) -> np.ndarray:
    """A copy sorted along the first axis."""
    return np.sort(a, axis=0)


def obj2sctype(rep: Any, default: Any = None) -> Any:
    """The type of a scalar, an array, or what names a dtype; ``default`` where it is none."""
    try:
        return np.dtype(rep.dtype if isinstance(rep, np.ndarray | np.generic) else rep).type
    except TypeError:
        return default


def issctype(rep: Any) -> bool:
    """Whether ``rep`` names the type of a scalar."""
    return isinstance(rep, type | np.dtype) and obj2sctype(rep) not in (None, np.object_)


def issubsctype(arg1: Any, arg2: Any) -> bool:
    """Whether the type of the first is a subclass of that of the second."""
    abstract = isinstance(arg2, type) and issubclass(arg2, np.generic)
    return issubclass(obj2sctype(arg1), arg2 if abstract else obj2sctype(arg2))


def sctype2char(sctype: Any) -> str:
    """The one-letter code of a type."""
    return np.dtype(obj2sctype(sctype)).char


_KINDS = "biufc"  # numbers, from narrow to wide


def find_common_type(array_types: Sequence[Any], scalar_types: Sequence[Any]) -> np.dtype | None:
    """The data type of the arrays together; that of the scalars only if it is of a wider kind of numbers."""
    arrays, scalars = (
        np.result_type(*map(np.dtype, types)) if types else None for types in (array_types, scalar_types)
    )
    if arrays is None or scalars is None:
        return scalars if arrays is None else arrays
    return scalars if _KINDS.find(scalars.kind) > _KINDS.find(arrays.kind) >= 0 else arrays


class _Casts(dict):
    """``np.cast[dtype](x)``: x as an array of that data type."""

    def __missing__(self, dtype: Any) -> Callable[[Any], np.ndarray]:
        return lambda x: np.asarray(x).astype(dtype)


_SCTYPES = {
    "int": [np.int8, np.int16, np.int32, np.int64],
    "uint": [np.uint8, np.uint16, np.uint32, np.uint64],
    "float": [np.float16, np.float32, np.float64, np.longdouble],
    "complex": [np.complex64, np.complex128, np.clongdouble],
    "others": [bool, object, bytes, str, np.void],
}

_fromstring = np.fromstring


def fromstring(string: Any, dtype: Any = float, count: int = -1, sep: str = "", **like: Any) -> np.ndarray:
    """An array of the numbers in a text, or, without a separator, of the bytes themselves."""
    if sep:
        return _fromstring(string, dtype, count, sep=sep, **like)
    data = string.encode("latin1") if isinstance(string, str) else string
    return np.frombuffer(data, dtype, count).copy()


def _accepts_ragged(make: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    @functools.wraps(make)
    def array(object: Any, dtype: Any = None, *args: Any, **kwargs: Any) -> np.ndarray:
        try:
            return make(object, dtype, *args, **kwargs)
        except OverflowError as error:  # a whole number that does not fit is cut off to the bits that do
            if dtype is None or "out of bounds" not in str(error):
                raise
            return make(object, None, *args, **kwargs).astype(dtype)
        except ValueError as error:
            if dtype is not None or "inhomogeneous" not in str(error):
                raise
            return make(object, np.object_, *args, **kwargs)

    return array


_asarray, _array = _accepts_ragged(np.asarray), _accepts_ragged(np.array)


@functools.wraps(np.array)
def array(object: Any, dtype: Any = None, copy: Any = True, *args: Any, **kwargs: Any) -> np.ndarray:
    """An array; ``copy=False`` copies where it is needed, and ``copy`` may be given by its position."""
    mode = {False: None}.get(copy, copy)  # NumPy's own modes have no truth value
    return _array(object, dtype, *args, copy=mode, **kwargs)


_CHANGED = {"fromstring": fromstring, "array": array, "asarray": _asarray}
_FUNCTIONS = (
    alen, asfarray, asscalar, find_common_type, in1d, issctype, issubsctype, msort, obj2sctype, sctype2char
)  # fmt: skip
_VALUES = {"NINF": -np.inf, "PZERO": 0.0, "NZERO": -0.0, "loads": pickle.loads, "math": math, "typeDict": np.sctypeDict}
_VALUES |= {"cast": _Casts(), "sctypes": _SCTYPES}


def install() -> None:
    """Restore what is missing; ``fromstring`` reads bytes again, uneven lists become arrays, numbers print bare."""
    names: dict[str, Any] = {**_TYPES, **_VALUES}
    names |= {old: getattr(np, new) for new, olds in _RENAMED.items() for old in olds.split()}
    names |= {name: getattr(np.exceptions, name) for name in _EXCEPTIONS.split() if hasattr(np.exceptions, name)}
    names |= {function.__name__: function for function in _FUNCTIONS}
    for name, value in names.items():
        vars(np).setdefault(name, value)
    vars(np).update(_CHANGED)
    vars(np.lib).setdefault("pad", np.pad)
    if np.lib.NumpyVersion(np.__version__) >= "2.0.0":
        np.set_printoptions(legacy="1.25")  # logs hold 0.5, not np.float32(0.5)
