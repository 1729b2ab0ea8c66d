"""The tensors held by a Scope: Tensor and LoDTensor.

The storage of a LoDTensor is a NumPy array set by the user, an array left by a program, or a slot among the arrays
that a program keeps between its runs (``Resident``). Programs may donate their storage while they run, so users
always receive copies.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from fluidjax.base.enums import VarType, to_numpy_dtype, to_var_type
from fluidjax.base.errors import EnforceNotMet
from fluidjax.base.lod import Lod, checked_levels, lengths_to_offsets, lod_fault, offsets_to_lengths
from fluidjax.base.places import CPUPlace, Place

# Seconds that a reader waits for what a run in another thread is about to leave.
_PATIENCE = 60.0
_SETTABLE = "bool float16 float32 float64 int8 int16 int32 int64 uint8 uint16 bfloat16".split()
# How a C++ stream names the element types.
_CPP_NAMES = {
    VarType.BOOL: "bool",
    VarType.INT16: "int16_t",
    VarType.INT32: "int",
    VarType.INT64: "int64_t",
    VarType.FP16: "float16",
    VarType.FP32: "float",
    VarType.FP64: "double",
    VarType.UINT8: "uint8_t",
    VarType.INT8: "int8_t",
    VarType.BF16: "bfloat16",
}


def _checked_array(array: Any) -> np.ndarray:
    data = np.array(array, copy=True, order="C")
    if data.dtype.name not in _SETTABLE:
        raise EnforceNotMet(
            f"LoDTensor.set: elements of dtype {data.dtype} cannot be stored. Expected one of {', '.join(_SETTABLE)}. "
            "Convert the data first, for instance with numpy.asarray(data, 'float32')."
        )
    return data.view(np.float16) if data.dtype == np.uint16 else data


class Resident:
    """The storage of a tensor as entry ``index`` of the ``state`` that a program keeps between its runs.

    ``state`` has ``read(index)``, the array left by the last run; ``outdate()``, called when the tensor is assigned
    another value, so that the program must consult the scope again, followed by ``leave(index)``; and ``lock``, which
    prevents a run in another thread from donating the array.
    """

    __slots__ = ("_index", "_state")

    def __init__(self, state: Any, index: int) -> None:
        self._state = state
        self._index = index

    def read(self) -> Any:
        """The array; not a copy, unless it shares a buffer with others."""
        return self._state.read(self._index)

    def of(self, state: Any) -> bool:
        """Whether it is an entry of ``state``."""
        return self._state is state

    def copied(self) -> np.ndarray:
        """A copy on the host."""
        with self._state.lock:
            return np.array(self.read(), copy=True)

    def give_way(self, tensor: Tensor, array: Any) -> None:
        """Make ``tensor`` hold ``array`` instead, atomically."""
        with self._state.lock:
            if tensor._stored is self:
                self._state.outdate()
                tensor._stored = array
                self._state.leave(self._index)
            else:  # a run in another thread was faster
                tensor._array = array


class Tensor:
    """An n-dimensional array at a place."""

    def __init__(self) -> None:
        self._stored: Any = None
        self._dims: tuple[int, ...] = (0,)
        self._place_: Place = CPUPlace()

    # What programs use.

    @property
    def _array(self) -> Any:
        stored = self._stored
        return stored.read() if isinstance(stored, Resident) else stored

    @_array.setter
    def _array(self, array: Any) -> None:
        stored = self._stored
        if isinstance(stored, Resident):
            stored.give_way(self, array)
        else:
            self._stored = array

    def _on_host(self) -> np.ndarray:
        """An unshared copy of a value that no run donates meanwhile."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            stored = self._stored
            try:
                return stored.copied() if isinstance(stored, Resident) else np.array(stored, copy=True)
            except RuntimeError:  # a run in another thread took the array, and will leave another
                if not getattr(stored, "is_deleted", bool)() or time.monotonic() > deadline:
                    raise
                time.sleep(0.001)

    def _move_out(self) -> None:
        """Store the value in the tensor itself, if it is kept by a program."""
        if isinstance(self._stored, Resident):
            self._array = self._stored.read()

    @property
    def _value(self) -> Any:
        """The storage itself, not a copy; None if nothing has been stored."""
        return self._array

    def _set_value(self, array: Any, lod: Lod | None = None) -> None:
        """Store `array` itself, not a copy; `lod`, if given, replaces the offsets."""
        self._array = array

    # What users call.

    def set(self, array: Any, place: Place, zero_copy: bool = False) -> None:
        """Store a copy of `array` (anything NumPy accepts; uint16 denotes raw float16 words).

        Raises TypeError if `place` is not a place, EnforceNotMet for dtypes that Fluid does not support.
        """
        if not isinstance(place, Place):
            raise TypeError(
                f"LoDTensor.set: the place is {place!r}. Expected a place. Call tensor.set(array, fluid.CPUPlace())."
            )
        self._place_ = place
        self._set_value(_checked_array(array))

    def shape(self) -> list[int]:
        """The dimensions."""
        if self._array is None:
            return list(self._dims)
        return [int(n) for n in self._array.shape]

    def _get_dims(self) -> list[int]:
        return self.shape()

    def _set_dims(self, dims: Sequence[int]) -> None:
        self._dims = tuple(int(n) for n in dims)
        if self._array is not None:
            self._set_value(np.resize(self._on_host(), self._dims))

    def _dtype(self) -> VarType:
        self._check_initialized("_dtype()")
        return to_var_type(np.dtype(self._array.dtype))

    def _place(self) -> Place:
        return self._place_

    def _is_initialized(self) -> bool:
        return self._stored is not None

    def _clear(self) -> None:
        self._array, self._dims = None, (0,)

    def _alloc_float(self, place: Place) -> None:
        self._mutable_data(place, VarType.FP32)

    def _alloc_double(self, place: Place) -> None:
        self._mutable_data(place, VarType.FP64)

    def _alloc_int(self, place: Place) -> None:
        self._mutable_data(place, VarType.INT32)

    def _mutable_data(self, place: Place, dtype: VarType) -> int:
        """The address of the allocated memory, which is the tensor's until its value is replaced."""
        self._place_ = place
        memory = np.zeros(self.shape(), to_numpy_dtype(dtype))
        self._set_value(memory)
        return memory.ctypes.data

    def _set_float_element(self, index: int, value: float) -> None:
        data = self._on_host()
        data.reshape(-1)[index] = value
        self._set_value(data)

    def _get_float_element(self, index: int) -> float:
        return float(self._on_host().reshape(-1)[index])

    _set_double_element, _get_double_element = _set_float_element, _get_float_element

    def _to_dlpack(self) -> Any:
        self._check_initialized("_to_dlpack")
        return self._on_host().__dlpack__()

    def _set_layout(self, layout: str) -> None:
        if layout not in ("NCHW", "NHWC", "AnyLayout"):
            raise ValueError(f"_set_layout: unknown layout {layout!r}. Expected NCHW, NHWC or AnyLayout.")

    def _share_data_with(self, other: Tensor) -> None:
        self._place_ = other._place_
        self._set_value(None if other._value is None else other._on_host())

    def _check_initialized(self, what: str) -> None:
        if self._array is None:
            raise EnforceNotMet(
                f"Tensor not initialized yet when {what} is called: nothing was stored in it. Set it with "
                "tensor.set(array, place), or run the program that computes it (for a parameter, the startup "
                "program)."
            )

    def __getstate__(self) -> dict[str, Any]:
        """For copying and pickling: programs keep the storage, and a copy gets the value."""
        return self.__dict__ | {"_stored": None if self._array is None else self._on_host()}

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """A NumPy copy; an empty array if nothing has been stored."""
        data = np.zeros(0) if self._array is None else self._on_host()
        return data if dtype is None else data.astype(dtype, copy=False)

    def __getitem__(self, item: Any) -> Tensor:
        """A tensor with the elements of a basic slice; as in Fluid, an integer keeps its axis. Raises IndexError."""
        self._check_initialized("[]")
        items = item if isinstance(item, tuple) else (item,)
        data = self._on_host()
        data[items]  # NumPy's IndexError, that ends a loop over the rows: a slice beyond the end is an empty one
        part = type(self)()
        part._set_value(data[tuple(slice(i, i + 1 or None) if isinstance(i, (int, np.integer)) else i for i in items)])
        return part

    def __str__(self) -> str:
        if self._array is None:
            return f"\tdim: {', '.join(map(str, self.shape()))}\n\tnot initialized\n"
        data = np.array(self)
        text = " ".join(_number(x) for x in data.reshape(-1).tolist())
        dims = ", ".join(map(str, data.shape))
        return f"\tdim: {dims}\n\tlayout: NCHW\n\tdtype: {_CPP_NAMES[self._dtype()]}\n\tdata: [{text}]\n"


def _number(x: float | bool) -> str:
    return f"{x:g}" if isinstance(x, float) else str(int(x))


class LoDTensor(Tensor):
    """A tensor whose rows may be grouped into sequences.

    The grouping (LoD, level of detail) is a list of levels, coarsest first. ``lod()`` gives offsets, [[0, 2, 5]];
    ``recursive_sequence_lengths()`` gives lengths, [[2, 3]].

    Examples:
        >>> tensor = fluid.LoDTensor()
        >>> tensor.set(np.arange(5).reshape(5, 1), fluid.CPUPlace())
        >>> tensor.set_recursive_sequence_lengths([[2, 3]])
        >>> tensor.lod()
        [[0, 2, 5]]
    """

    def __init__(self, recursive_sequence_lengths: Lod | None = None) -> None:
        super().__init__()
        self._levels: Lod = []
        if recursive_sequence_lengths:
            self.set_recursive_sequence_lengths(recursive_sequence_lengths)

    def _set_value(self, array: Any, lod: Lod | None = None) -> None:
        """Store `array` itself, not a copy; its LoD is `lod` (offsets) if given, else unchanged."""
        self._array = array
        if lod is not None:
            self._levels = lod

    @property
    def _lod(self) -> Lod:
        return self._levels

    @_lod.setter
    def _lod(self, lod: Lod) -> None:
        self._move_out()
        self._levels = lod

    def lod(self) -> Lod:
        """A copy of the LoD as offsets."""
        return [list(level) for level in self._lod]

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_levels": self.lod()}

    def set_lod(self, lod: Lod) -> None:
        """Set the LoD from offsets. Raises EnforceNotMet if they are inconsistent or do not match the rows."""
        lod = checked_levels(lod, "LoDTensor.set_lod")
        fault = lod_fault(lod, self.shape()[0] if self._array is not None and self.shape() else None)
        if fault:
            raise EnforceNotMet(
                f"the provided lod info is invalid: {fault} (the tensor's shape is {self.shape()}, the LoD {lod}). "
                "Give offsets that start at 0, do not decrease and end at the number of rows."
            )
        self._lod = lod

    def recursive_sequence_lengths(self) -> Lod:
        """The LoD as lengths."""
        return offsets_to_lengths(self._lod)

    def set_recursive_sequence_lengths(self, recursive_sequence_lengths: Lod) -> None:
        """Set the LoD from lengths. Raises EnforceNotMet if they are inconsistent or do not match the rows."""
        lod = lengths_to_offsets(checked_levels(recursive_sequence_lengths, "set_recursive_sequence_lengths"))
        fault = lod_fault(lod, self.shape()[0] if self._array is not None and self.shape() else None)
        if fault:
            raise EnforceNotMet(
                f"the provided recursive_sequence_lengths info is invalid: as offsets, {fault} (the tensor's shape "
                f"is {self.shape()}, the lengths {recursive_sequence_lengths}). The lengths of the finest level "
                "must add up to the number of rows."
            )
        self._lod = lod

    def has_valid_recursive_sequence_lengths(self) -> bool:
        """Whether the LoD matches the rows."""
        return lod_fault(self._lod, self.shape()[0] if self.shape() else 0) is None

    def _copy(self, place: Place) -> LoDTensor:
        copy = LoDTensor()
        copy._place_ = place
        if self._value is not None:
            copy._set_value(self._on_host())
        copy._lod = self.lod()
        return copy

    def __str__(self) -> str:
        if not self._lod:
            levels = "\tlod: {}\n" if self._array is not None else ""
        else:
            rows = ("{" + ", ".join(map(str, level)) + "}" for level in self._lod)
            levels = "\tlod: {" + "".join(rows) + "}\n"
        return levels + super().__str__()


def keep_own(held: Any) -> None:
    """Make a tensor that is about to leave its variable store its own value, independent of a program."""
    if isinstance(held, LoDTensor):
        held._move_out()
