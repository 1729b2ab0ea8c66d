"""What a variable holds that shares memory with a NumPy array, as ``to_variable`` makes them on a CPU.

Nobody tells of a write into an array: the array is compared with what was seen last each time the variable is asked
for its value. It is no longer looked at once nobody else can write into it.
"""

from __future__ import annotations

import sys
from typing import Any

import jax
import numpy as np

from fluidjax.eager import values
from fluidjax.eager.pending import recorder
from fluidjax.eager.values import Spec, Value
from lowering.values import LoDArray

# References to an array that nobody else has: the slot, local variables of two functions, getrefcount's argument; and
# to the array that it is a view of: the view, a local variable, getrefcount's argument.
_ARRAY, _BASE = 4, 3
_SMALL = 1 << 15  # bytes that are copied faster than NumPy is asked six times


class Shared:
    """The numbers that an array has at the moment, in place of a value.

    Attributes:
        array: the array; None once the variable has its numbers to itself.
        seen: the value when it was looked at last.
    """

    __slots__ = ("array", "seen")

    def __init__(self, array: np.ndarray) -> None:
        self.array: np.ndarray | None = array
        self.seen = values.value_of(array)

    @property
    def spec(self) -> Spec:
        """What the numbers are."""
        return self.seen.spec

    def now(self) -> Value:
        """The value of this moment."""
        array = self.array
        if array is None:
            return self.seen
        if _is_ours(array):
            self.array = None
        elif not _same(array, self.seen.array):
            self.seen = values.value_of(array)
        return self.seen

    def becomes(self, value: Value | None) -> Shared | Value | None:
        """What a variable holds that gets another value: numbers that fit are written into the array of others."""
        array = self.array
        if array is None or _is_ours(array) or value is None or value.spec is not self.seen.spec:
            return value
        array[...] = values.on_host(recorder.array_of(value))
        self.seen = values.value_of(array)
        return self


def can_share(array: np.ndarray) -> bool:
    """Whether memory is shared: of arrays that NumPy keeps in rows and may write, where there is no accelerator."""
    flags = array.flags
    return flags.c_contiguous and flags.writeable and array.dtype != np.uint16 and jax.default_backend() == "cpu"


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
