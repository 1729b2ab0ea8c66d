"""The value of a variable that shares memory with a NumPy array, as created by ``to_variable`` on a CPU.

Writes to an array cannot be observed, so the array is compared with its last known contents each time the value of
the variable is needed. This ends once nothing else can write to the array.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import jax
import numpy as np

from fluidjax.base.enums import VarType
from fluidjax.eager import values
from fluidjax.eager.recorded.pending import recorder
from fluidjax.eager.values import Spec, Value
from fluidjax.execution.executables.executable import default_device, platform_of
from lowering.values import LoDArray

_HALF = VarType.FP16

# References to an unshared array: the slot, local variables of two functions, getrefcount's argument; and
# to the array that it is a view of: the view, a local variable, getrefcount's argument.
_ARRAY, _BASE = 4, 3
_SMALL = 1 << 15  # bytes that are copied faster than six calls of NumPy


class Shared:
    """The current numbers of an array, in place of a value.

    Attributes:
        array: the array; None once the variable no longer shares its numbers.
        spec: of the numbers.
        seen: the value when it was last inspected; None if nobody has asked for it.
    """

    __slots__ = ("array", "seen", "spec")

    array: np.ndarray | None
    seen: Value | None
    spec: Spec

    def now(self) -> Value:
        """The current value."""
        array, seen = self.array, self.seen
        if array is None:
            return seen  # type: ignore[return-value]
        if sys.getrefcount(array) <= _ARRAY - 1 and _is_ours(array):  # one function less than for ``_is_ours``
            if seen is None:
                seen = self._took(Value(array) if array.__class__ is np.ndarray else values.value_of(array))
            self.array = None
            return seen
        if seen is None:
            if array.__class__ is not np.ndarray or self.spec.dtype is _HALF:
                return self._took(values.value_of(array))
            self.seen = seen = _new(Value)
            seen.array, seen.spec, seen.serial, seen.index = array.copy(), self.spec, -1, 0
            return seen
        known = seen.array
        if known.__class__ is np.ndarray and array.nbytes <= _SMALL and array.shape == known.shape:
            if array.tobytes() == known.tobytes():
                return seen
        elif _same(array, known):
            return seen
        return self._took(values.value_of(array))

    def _took(self, value: Value) -> Value:
        self.seen, self.spec = value, value.spec
        return value

    def stopping(self, stop: bool) -> None:
        """The variable is about to be stopped, or the contrary: nothing here depends on it."""

    def becomes(self, value: Value | None) -> Shared | Value | None:
        """The result of assigning a value to a variable: matching numbers are written into the existing array."""
        array = self.array
        if array is None or _is_ours(array) or value is None or value.spec is not self.spec:
            return value
        array[...] = values.on_host(recorder.array_of(value))
        self.seen = values.value_of(array)
        return self


def shared(array: np.ndarray) -> Shared | None:
    """The numbers of an array; None where its memory is not shared.

    It is for writable C-contiguous arrays, if there is no accelerator.
    """
    flags, spec = array.flags, values.plain_specs.get((array.shape, array.dtype)) or values.spec_of(array)
    if not (flags.c_contiguous and flags.writeable) or (spec.dtype is _HALF and array.dtype == values.HALF_BITS):
        return None
    if not _is_on_host(jax.default_device.value):
        return None
    found: Shared = _new(Shared)
    found.array, found.seen, found.spec = array, None, spec
    return found


_new: Any = object.__new__  # calling a class takes twice as long


@cache
def _is_on_host(chosen: Any) -> bool:
    """Whether the default device is the host, given what jax was told; asking for it takes longer than the rest."""
    return platform_of(default_device()) == "cpu"


def _is_ours(array: np.ndarray) -> bool:
    """Whether nothing else refers to the array, or to the one it is a view of."""
    base = array.base
    if sys.getrefcount(array) > _ARRAY:
        return False
    return base is None or (type(base) is np.ndarray and base.base is None and sys.getrefcount(base) <= _BASE)


def _same(array: np.ndarray, seen: Any) -> bool:
    """Whether two arrays have the same bits."""
    if isinstance(seen, LoDArray) or array.shape != seen.shape:
        return False
    if array.nbytes <= _SMALL:
        return array.tobytes() == seen.tobytes()
    word = np.dtype(f"u{array.dtype.itemsize}")
    return bool((array.reshape(-1).view(word) == seen.reshape(-1).view(word)).all())
