"""Tensors from Python values and back, as offered by Fluid's executor module."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluidjax.base.containers import LoDTensorArray
from fluidjax.base.enums import VarType, to_numpy_dtype
from fluidjax.base.places import Place
from fluidjax.base.values import LoDTensor


def as_numpy(tensor: Any) -> Any:
    """The array of a tensor.

    Args:
        tensor: a LoDTensor without LoD; or a LoDTensorArray or list of such, for a list of arrays.

    Returns:
        The array; None for a tensor that holds nothing.

    Raises:
        RuntimeError: the tensor has LoD, which an array cannot keep.
        TypeError: it is neither a tensor nor a list of tensors.
    """
    if isinstance(tensor, (LoDTensorArray, list)):
        return [as_numpy(item) for item in tensor]
    if not isinstance(tensor, LoDTensor):
        raise TypeError(
            f"as_numpy: expected a LoDTensor, a LoDTensorArray or a list of them, received {type(tensor).__name__};"
            " take one from a scope, or from a run with return_numpy=False"
        )
    if tensor.lod():
        raise RuntimeError(
            "Some of your fetched tensors hold LoD information: expected none to turn into an array, received LoD"
            f" {tensor.lod()}. Use the LoDTensor itself (return_numpy=False), or numpy.array(tensor) for its rows alone"
        )
    return np.array(tensor) if tensor._is_initialized() else None


def as_lodtensor(data: Any, place: Place, dtype: VarType | str | None = None) -> LoDTensor:
    """A tensor of an array, a tuple of numbers, or one number.

    Args:
        data: the value. Lists are refused: nothing tells whether they stand for rows or for sequences.
        place: where the tensor is.
        dtype: of one number, which becomes a tensor of shape [1]; an array keeps its own.

    Raises:
        RuntimeError: a list.
        AssertionError: one number without ``dtype``.
    """
    if isinstance(data, list):
        raise RuntimeError(
            "Some of your feed data hold LoD information: expected an array, received a list, which may stand for"
            " sequences. Make it an array, or a LoDTensor by fluid.create_lod_tensor"
        )
    if not isinstance(data, (np.ndarray, tuple)):
        if dtype is None:
            raise AssertionError(
                "dtype should be given when casting python scalar to tensor: expected a data type, received None;"
                ' pass dtype="float32"'
            )
        data = np.array([data]).astype(to_numpy_dtype(dtype) if isinstance(dtype, VarType) else dtype)
    tensor = LoDTensor()
    tensor.set(np.asarray(data), place)
    return tensor
