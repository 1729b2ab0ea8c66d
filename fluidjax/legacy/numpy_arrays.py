"""Conversion of single-element arrays to Python numbers, and array methods removed in NumPy 2.

Fetched arrays convert by themselves. But scripts also write ``"%f" % np.array(tensor)`` and ``float(np.mean(losses,
axis=0))``, which involve plain arrays: NumPy's own class has to be patched at the C level.
"""

from __future__ import annotations

import ctypes
import gc
from typing import Any

import numpy as np

from fluidjax.execution.scopes.fetched import FetchedArray

_CONVERSIONS = ("__float__", "__int__", "__complex__")


def itemset(array: np.ndarray, *args: Any) -> None:
    """``itemset(value)`` sets the only element; ``itemset(i, value)`` and ``itemset((i, j), value)`` one of several."""
    *index, value = args
    if not index and array.size != 1:
        raise ValueError(f"itemset: the array has the shape {array.shape}, expected one element; say which one")
    if index and isinstance(index[0], tuple):
        array[index[0]] = value
    else:
        array.flat[index[0] if index else 0] = value


def newbyteorder(array: np.ndarray, new_order: str = "S") -> np.ndarray:
    """A view in which the bytes of each element are read in another order."""
    return array.view(array.dtype.newbyteorder(new_order))  # type: ignore[arg-type]


_METHODS = {"itemset": itemset, "newbyteorder": newbyteorder, "ptp": np.ptp, "tostring": np.ndarray.tobytes}

_NUMBER_SLOTS = (
    "add subtract multiply remainder divmod power negative positive absolute bool invert lshift rshift and xor or int"
    " reserved float"
).split()


class _NumberMethods(ctypes.Structure):
    """The beginning of CPython's PyNumberMethods."""

    _fields_ = [(name, ctypes.c_void_p) for name in _NUMBER_SLOTS]


class _Type(ctypes.Structure):
    """The beginning of CPython's PyTypeObject."""

    _fields_ = [
        ("head", ctypes.c_char * object.__basicsize__),
        *((name, ctypes.c_ssize_t) for name in ("size", "name", "basic_size", "item_size")),
        *((name, ctypes.c_void_p) for name in ("dealloc", "vectorcall", "getattr", "setattr", "as_async", "repr")),
        ("as_number", ctypes.POINTER(_NumberMethods)),
    ]


# Their numbers in CPython's stable ABI.
_REPR, _FLOAT, _INT = 66, 11, 26


def _slot(kind: type, number: int) -> int | None:
    get = ctypes.pythonapi.PyType_GetSlot
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_int]
    return get(kind, number)


def install() -> None:
    """Make NumPy's own arrays convert, and restore their methods, if this Python lays out classes as expected."""
    names = gc.get_referents(np.ndarray.__dict__)[0]  # what the read-only view shows
    for name, method in _METHODS.items():
        names.setdefault(name, method)
    if not _converts() and _is_laid_out(np.ndarray):
        names.update({name: vars(FetchedArray)[name] for name in _CONVERSIONS})
        numbers = _Type.from_address(id(np.ndarray)).as_number.contents
        # The slots that Python gives to classes with methods of these names: they look the methods up.
        numbers.float, numbers.int = _slot(FetchedArray, _FLOAT), _slot(FetchedArray, _INT)
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(np.ndarray))


def _converts() -> bool:
    return vars(np.ndarray).get("__float__") is vars(FetchedArray)["__float__"]


def _is_laid_out(kind: type) -> bool:
    """Whether the values read through the structures agree with CPython's; numbers only once the class does."""
    found = _Type.from_address(id(kind))
    if found.repr != _slot(kind, _REPR) or not found.as_number:
        return False
    numbers = found.as_number.contents
    return numbers.float == _slot(kind, _FLOAT) and numbers.int == _slot(kind, _INT)
