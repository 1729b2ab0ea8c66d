"""What an eager variable is bound to: a value, present or pending, of known shape and dtype."""

from __future__ import annotations

from functools import cache
from operator import attrgetter
from typing import Any

import jax
import numpy as np

from fluidjax.base.enums import VarType, to_numpy_dtype, to_var_type
from fluidjax.base.errors import EnforceNotMet, explain
from lowering.values import LoDArray, RowCounts, SelectedRows, TensorArray, data_of


class Spec:
    """Shape, element type and kind of a value. Equal ones are one object (see ``of``) and are compared by identity.

    Attributes:
        kind: LOD_TENSOR, SELECTED_ROWS or LOD_TENSOR_ARRAY.
        rows: for SELECTED_ROWS, the number of rows it holds.
        plain: whether shape and dtype are all a kernel needs to know; not the case with a LoD.
    """

    __slots__ = ("dtype", "kind", "plain", "rows", "shape")

    _known: dict[Any, Spec] = {}

    def __init__(self, shape: tuple[int, ...], dtype: VarType, kind: VarType, rows: int | None, plain: bool) -> None:
        self.shape, self.dtype, self.kind, self.rows, self.plain = shape, dtype, kind, rows, plain

    @classmethod
    def of(
        cls,
        shape: tuple[int, ...],
        dtype: VarType,
        kind: VarType = VarType.LOD_TENSOR,
        rows: int | None = None,
        plain: bool = True,
    ) -> Spec:
        """The unique object with this content."""
        key = (shape, int(dtype), int(kind), rows, plain)
        found = cls._known.get(key)
        if found is None:
            found = cls._known[key] = cls(shape, VarType(dtype), VarType(kind), rows, plain)
        return found

    @property
    def aval(self) -> Any:
        """The abstract value for tracing a kernel."""
        if self is KEY:
            return jax.ShapeDtypeStruct((2,), np.uint32)
        dtype = to_numpy_dtype(self.dtype)
        if self.kind == VarType.SELECTED_ROWS:
            values = jax.ShapeDtypeStruct((self.rows, *self.shape[1:]), dtype)
            return SelectedRows(jax.ShapeDtypeStruct((self.rows,), np.int64), values, self.shape[0])
        return jax.ShapeDtypeStruct(self.shape, dtype)

    def __repr__(self) -> str:
        return f"{self.dtype} {list(self.shape)}"


UNKNOWN = Spec.of((), VarType.FP32)  # what a variable without a value reports
KEY = Spec((2,), VarType.INT32, VarType.RAW, None, True)  # of the two words of a PRNG key

_HALF = VarType.FP16
_SPARSE = VarType.SELECTED_ROWS  # asking the enumeration takes longer than the rest
_WRAPPED = LoDArray, RowCounts
HALF_BITS = np.dtype(np.uint16)  # in which Fluid passes float16

plain_specs: dict[Any, Spec] = {}  # of arrays, by shape and dtype, as far as they have been asked for


def spec_of(array: Any) -> Spec:
    """The spec of a value of the lowering (or of its abstract stand-in)."""
    if array.__class__ is np.ndarray:
        found = plain_specs.get((array.shape, array.dtype))
        if found is not None:
            return found
    if isinstance(array, SelectedRows):
        rows = int(array.values.shape[0])
        return Spec.of(tuple(array.shape), to_var_type(np.dtype(array.dtype)), VarType.SELECTED_ROWS, rows)
    if isinstance(array, TensorArray):
        return Spec.of((), VarType.FP32, VarType.LOD_TENSOR_ARRAY, None, False)
    key = array.shape, array.dtype
    if isinstance(array, (LoDArray, RowCounts)):
        data = data_of(array)
        return Spec.of(tuple(data.shape), to_var_type(np.dtype(data.dtype)), plain=False)
    found = plain_specs.get(key)
    if found is None:
        found = plain_specs[key] = Spec.of(tuple(array.shape), to_var_type(np.dtype(array.dtype)))
    return found


class Value:
    """One value: the lowering's array, SelectedRows, LoDArray ..., and its spec.

    Attributes:
        array: the value; None while it is pending.
        spec: its spec.
        serial, index: its position among the pending ops (see ``pending``).
    """

    __slots__ = ("__weakref__", "array", "index", "serial", "spec")

    def __init__(self, array: Any, spec: Spec | None = None) -> None:
        self.array = array
        self.spec = spec_of(array) if spec is None else spec
        self.serial = -1
        self.index = 0

    @staticmethod
    def pending(spec: Spec, serial: int, index: int) -> Value:
        """The value of a pending output, or of none yet."""
        value = Value.__new__(Value)
        value.array, value.spec, value.serial, value.index = None, spec, serial, index
        return value


array_of = attrgetter("array")


def lost() -> EnforceNotMet:
    """The error for a value whose op failed."""
    return EnforceNotMet(
        explain(
            "a variable has no value: an op that it follows from failed when it ran",
            "values of ops that succeeded",
            "a value that was never computed",
            "mend the op that the earlier error names, and compute the variable again",
        )
    )


def to_device(values: list[Value]) -> None:
    """Move values from the host to the device, which each call would repeat otherwise.

    It takes as long as two ops: what an op on the host gives, and the next step replaces, is left there.
    """
    for value in values:
        value.array = jax.device_put(value.array, may_alias=False)  # jax.numpy.array compiles a copy for each shape


def on_host(array: Any) -> np.ndarray:
    """A copy of a dense value's numbers."""
    return np.array(array.data if isinstance(array, _WRAPPED) else array)


def value_of(array: Any) -> Value:
    """A value with the numbers of a NumPy array, which may be written to later."""
    array = np.array(array, copy=True)
    spec = plain_specs.get((array.shape, array.dtype))
    if spec is None or spec.dtype is _HALF:
        array = array.view(np.float16) if array.dtype == HALF_BITS else array
        spec = spec_of(array)
    value: Value = _new(Value)  # calling the class takes twice as long
    value.array, value.spec, value.serial, value.index = array, spec, -1, 0
    return value


_new: Any = object.__new__


@cache
def zeros(spec: Spec) -> Value:
    """Zeros of that shape and dtype; a single shared value, which is never written to."""
    return Value(np.zeros(spec.shape, to_numpy_dtype(spec.dtype)), spec)


def cleared(spec: Spec) -> Value | None:
    """What a gradient is once it has been cleared: zeros, or none at all if it was sparse."""
    return None if spec.kind is _SPARSE else zeros(spec)


@cache
def ones(spec: Spec) -> Value:
    """The same with ones: the gradient of what a backward pass begins with."""
    return Value(np.ones(spec.shape, to_numpy_dtype(spec.dtype)), spec)


def is_plain(spec: Spec) -> bool:
    """Whether a value is an array, and no more."""
    return spec.plain and spec.kind == VarType.LOD_TENSOR


def is_constant(value: Value) -> bool:
    """Whether it is one of the shared values."""
    return value is zeros(value.spec) or (is_plain(value.spec) and value is ones(value.spec))


def fresh_zeros(spec: Spec) -> Value:
    """Zeros of that shape and dtype that a variable may hold."""
    return Value(np.zeros(spec.shape, to_numpy_dtype(spec.dtype)), spec)


def lod_of(array: Any) -> list[list[int]]:
    """The LoD offsets of a value; [] for none."""
    return [np.asarray(level).tolist() for level in array.lod] if isinstance(array, LoDArray) else []
