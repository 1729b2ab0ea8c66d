"""Creating LoDTensors from lists and arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fluidjax.base.lod import Lod, checked_levels
from fluidjax.base.places import Place
from fluidjax.base.values import LoDTensor

__all__ = ["create_lod_tensor", "create_random_int_lodtensor"]


def create_lod_tensor(data: Any, recursive_seq_lens: Sequence[Sequence[int]], place: Place) -> LoDTensor:
    """A LoDTensor with the given sequence lengths.

    Args:
        data: an array [rows, ...]; a LoDTensor, whose rows are used; or a list of sequences, each a list of elements,
            converted to rows [rows, ..., 1] (int64 for integers).
        recursive_seq_lens: lengths, coarsest level first: [[2, 1], [3, 2, 4]] describes two sequences, the first of
            which has two subsequences; the finest lengths must add up to the number of rows.
        place: where to place the tensor.

    Raises TypeError for unsupported data, AssertionError if nested lists do not have the given lengths, and
    EnforceNotMet if the lengths do not match the rows.
    """
    levels = checked_levels(recursive_seq_lens, "create_lod_tensor")
    if isinstance(data, LoDTensor):
        return create_lod_tensor(np.array(data), recursive_seq_lens, place)
    if isinstance(data, list):
        data = _rows_of_lists(data, levels)
    if not isinstance(data, np.ndarray):
        raise TypeError(
            f"data should be either a LoDTensor, a Numpy array or a list, got {type(data).__name__}. Convert it with "
            "numpy.asarray."
        )
    tensor = LoDTensor()
    tensor.set(data, place)
    tensor.set_recursive_sequence_lengths(levels)
    return tensor


def _rows_of_lists(data: list, recursive_seq_lens: Lod) -> np.ndarray:
    if not all(isinstance(sequence, (list, tuple, np.ndarray)) for sequence in data):
        raise TypeError(
            f"create_lod_tensor: a list holds sequences, each a list of elements, received {data!r:.60}. Pass an array"
            " for rows, numpy.asarray(data).reshape([-1, 1]), or a list for each sequence."
        )
    lengths = [[len(sequence) for sequence in data]]
    if lengths != recursive_seq_lens:
        raise AssertionError(
            f"data and recursive_seq_lens do not match: the lists have the lengths {lengths}, recursive_seq_lens is "
            f"{recursive_seq_lens}. A list holds one level; make an array for more."
        )
    rows = np.concatenate([np.asarray(sequence) for sequence in data], axis=0)
    return rows.reshape((*rows.shape, 1))


def create_random_int_lodtensor(
    recursive_seq_lens: Sequence[Sequence[int]], base_shape: Sequence[int], place: Place, low: int, high: int
) -> LoDTensor:
    """A LoDTensor [rows, *base_shape] of int64 drawn uniformly from low, ..., high (inclusive).

    The numbers come from NumPy's global generator. Raises AssertionError if `base_shape` is not a list.
    """
    if not isinstance(base_shape, list):
        raise AssertionError(f"base_shape should be a list, got {base_shape!r}. Pass for instance [1].")
    rows = sum(recursive_seq_lens[-1])
    data = np.random.randint(low, high + 1, [rows, *base_shape]).astype(np.int64)
    return create_lod_tensor(data, recursive_seq_lens, place)
