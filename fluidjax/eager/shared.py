"""Variables that share memory with a NumPy array, as ``to_variable`` makes them on a CPU.

Nobody tells of a write into an array: the variable compares the array with what it saw last each time its value is
asked for. It stops looking once nobody else can write into it.
"""

from __future__ import annotations

import sys
from typing import Any

import jax
import numpy as np

from fluidjax.eager import values
from fluidjax.eager.pending import recorder
from fluidjax.eager.values import Spec, Value
from fluidjax.eager.varbase import VarBase
from lowering.values import LoDArray

# References to an array that nobody else has: the slot, local variables of two functions, getrefcount's argument; and
# to the array that it is a view of: the view, a local variable, getrefcount's argument.
_ARRAY, _BASE = 4, 3
_SMALL = 1 << 15  # bytes that are copied faster than NumPy is asked six times


def shared_with(array: np.ndarray, name: str | None) -> VarBase:
    """A variable of an array's numbers, also of those that are written into it later.

    What NumPy does not keep in rows, or may not write, is copied; so it is beside an accelerator.
    """
    flags = array.flags
    if not (flags.c_contiguous and flags.writeable) or array.dtype == np.uint16 or jax.default_backend() != "cpu":
        return VarBase(array, name=name)
    var = SharedVarBase(array, name=name)
    var._stop_gradient = True
    var._array_shared = array
    return var


def class_of_results(var: VarBase) -> type[VarBase]:
    """The class of what is computed from a variable: its own, without an array."""
    return VarBase if isinstance(var, SharedVarBase) else type(var)


class SharedVarBase(VarBase):
    """A variable whose numbers are those that an array has at the moment."""

    __slots__ = ("_array_shared", "_seen")

    _array_shared: np.ndarray | None
    _seen: Value

    @property
    def _spec(self) -> Spec:
        return self._seen.spec

    @property
    def _value(self) -> Value:
        array = self._array_shared
        if array is None:
            return self._seen
        if _is_ours(array):
            self._array_shared = None
        elif not _same(array, self._seen.array):
            self._seen = values.value_of(array)
        return self._seen

    @_value.setter
    def _value(self, value: Value) -> None:
        """The variable gets another value: numbers that fit are written into the array, which somebody else has."""
        array: np.ndarray | None = getattr(self, "_array_shared", None)
        if array is None or _is_ours(array) or value is None or value.spec is not self._seen.spec:
            self._seen, self._array_shared = value, None
            return
        self._seen = value
        array[...] = values.on_host(recorder.array_of(value))
        self._seen = values.value_of(array)


SharedVarBase.__name__ = VarBase.__name__  # `type(x).__name__` is what scripts print


def _is_ours(array: np.ndarray) -> bool:
    """Whether nobody else has the array, nor what it is a view of."""
    base = array.base
    if sys.getrefcount(array) > _ARRAY:
        return False
    return base is None or (type(base) is np.ndarray and base.base is None and sys.getrefcount(base) <= _BASE)


def _same(array: np.ndarray, seen: Any) -> bool:
    """Whether two arrays hold the same bits."""
    if isinstance(seen, LoDArray) or array.shape != seen.shape:
        return False
    if array.nbytes <= _SMALL:
        return array.tobytes() == seen.tobytes()
    word = np.dtype(f"u{array.dtype.itemsize}")
    return bool((array.reshape(-1).view(word) == seen.reshape(-1).view(word)).all())
