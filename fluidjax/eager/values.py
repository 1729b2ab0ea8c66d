"""What an eager variable is bound to: an array (or another of the lowering's values) with its shape and dtype."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from fluidjax.base.enums import VarType, to_var_type
from lowering.values import LoDArray, SelectedRows, TensorArray, data_of


class Spec(NamedTuple):
    """Shape, element type and kind (LOD_TENSOR, SELECTED_ROWS, LOD_TENSOR_ARRAY) of a value."""

    shape: tuple[int, ...]
    dtype: VarType
    kind: VarType = VarType.LOD_TENSOR


_KINDS = ((SelectedRows, VarType.SELECTED_ROWS), (TensorArray, VarType.LOD_TENSOR_ARRAY))


def spec_of(array: Any) -> Spec:
    """What a value of the lowering (or its abstract stand-in) is."""
    kind = next((k for cls, k in _KINDS if isinstance(array, cls)), VarType.LOD_TENSOR)
    data = data_of(array)
    if kind == VarType.LOD_TENSOR_ARRAY:
        return Spec((), VarType.FP32, kind)
    return Spec(tuple(data.shape), to_var_type(np.dtype(data.dtype)), kind)


class Value:
    """One value: the lowering's array, SelectedRows, LoDArray ..., and what it is."""

    __slots__ = ("__weakref__", "array", "spec")

    def __init__(self, array: Any, spec: Spec | None = None) -> None:
        self.array = array
        self.spec = spec_of(array) if spec is None else spec


def on_host(array: Any) -> np.ndarray:
    """A copy of a dense value's numbers."""
    return np.array(data_of(array))


def on_device(array: Any) -> Any:
    """A device array with the numbers of a NumPy array, 64-bit types kept; the array may be written to later."""
    with jax.enable_x64(True):
        return jax.device_put(np.array(array, copy=True))


def lod_of(array: Any) -> list[list[int]]:
    """The LoD offsets of a value; [] for none."""
    return [np.asarray(level).tolist() for level in array.lod] if isinstance(array, LoDArray) else []
