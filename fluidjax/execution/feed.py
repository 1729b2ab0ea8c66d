"""Feeds: what the user passes under a variable's name, checked and turned into values of the lowering."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from fluidjax.base.values import LoDTensor, LoDTensorArray, SelectedRows, lod_fault
from fluidjax.execution.buckets import bucket
from fluidjax.execution.exchange import lod_array, to_lowering
from lowering.dtypes import from_numpy, to_numpy
from lowering.program import VarView


class Feeder:
    """Turns a run's feed dict into values; remembers the longest sequence seen for each ranked feed.

    Attributes:
        tight: whether ops need the exact length of the longest sequence, not a bound; it then is part of what a
            program is compiled for. The row capacity only grows then: otherwise each length would be compiled for each
            bucket.
    """

    def __init__(self, variables: Mapping[str, VarView], ranks: bool):
        self._variables = variables
        self._ranks = ranks
        self.tight = False
        self._longest: dict[str, tuple[int, ...]] = {}
        self._room: dict[str, int] = {}
        self._accepted: dict[str, tuple[np.dtype, tuple[int, ...]]] = {}

    def value(self, name: str, fed: Any, *, exact: bool) -> Any:
        """The value of one feed, or None (with a warning) when the program has no such variable."""
        if type(fed) is np.ndarray and self._accepted.get(name) == (fed.dtype, fed.shape):
            return fed
        var = self._variables.get(name)
        if var is None:
            warnings.warn(
                f"feed {name!r}: the program has no variable of that name, so the value is ignored", stacklevel=4
            )
            return None
        if isinstance(fed, np.ma.MaskedArray):
            raise TypeError(
                f"feed {name!r}: expected an array, received one with a mask, which no op respects; feed"
                " array.filled(value), and the mask as a variable of its own"
            )
        if isinstance(fed, np.ndarray):
            fed = _checked(var, fed)
            self._accepted[name] = fed.dtype, fed.shape
            return fed
        if isinstance(fed, LoDTensor):
            return self._tensor(var, fed, exact)
        if isinstance(fed, (SelectedRows, LoDTensorArray)):
            return to_lowering(fed)
        if isinstance(fed, jax.Array):
            return _checked(var, fed)
        return _checked(var, _from_python(var, fed))

    def _tensor(self, var: VarView, fed: LoDTensor, exact: bool) -> Any:
        data = fed._value
        if data is None:
            raise ValueError(
                f"feed {var.name!r}: the LoDTensor holds no data; expected rows set with tensor.set(array, place),"
                " received an empty tensor"
            )
        if not fed._lod:
            return _checked(var, data)
        fault = lod_fault(fed._lod, fed.shape()[0])
        if fault:
            raise ValueError(
                f"feed {var.name!r}: its LoD does not fit its {data.shape[0]} rows: {fault}; set lengths that add up"
                " to the number of rows"
            )
        checked = _checked(var, data)
        if not self.tight:
            return lod_array(checked, fed._lod, exact=exact, longest=self._bounds(var.name, fed))
        room = self._room[var.name] = max(bucket(data.shape[0]), self._room.get(var.name, 0))
        longest = tuple(int(np.diff(level).max(initial=0)) for level in fed._lod)
        return lod_array(checked, fed._lod, exact=exact, longest=longest, tight=True, room=room)

    def _bounds(self, name: str, fed: LoDTensor) -> tuple[int, ...]:
        if not self._ranks:
            return ()
        now = [bucket(int(np.diff(level).max(initial=1))) for level in fed._lod]
        before = self._longest.get(name, (0,) * len(now))
        self._longest[name] = tuple(map(max, now, before)) if len(before) == len(now) else tuple(now)
        return self._longest[name]


def _from_python(var: VarView, fed: Any) -> np.ndarray:
    """Numbers and nested lists take the variable's dtype, as they carry none of their own."""
    try:
        array = np.asarray(fed)
    except ValueError:
        array = np.asarray(None)
    if array.dtype == object:
        raise TypeError(
            f"feed {var.name!r}: expected an array, a LoDTensor or nested lists of equal lengths, received"
            f" {type(fed).__name__} that NumPy cannot make an array of; for ragged data use fluid.create_lod_tensor"
        )
    try:
        array = array.astype(to_numpy(var.dtype))
    except (ValueError, TypeError, OverflowError) as error:
        raise TypeError(
            f"feed {var.name!r}: expected numbers that fit {to_numpy(var.dtype)}, received {type(fed).__name__}"
            f" {fed!r:.60}; feed an array of that data type"
        ) from error
    return array if array.ndim else array.reshape(1)


def _checked(var: VarView, data: Any) -> Any:
    """``data`` if its shape and dtype suit the variable; ValueError otherwise."""
    expected = to_numpy(var.dtype)
    if data.dtype != expected and _dtype_matters(var, data.dtype, expected):
        raise ValueError(
            f"feed {var.name!r}: the data type does not match: expected {expected}, received {data.dtype}; convert it"
            f" with array.astype({str(expected)!r})"
        )
    if var.need_check_feed and not _shape_fits(var.shape, data.shape):
        raise ValueError(
            f"feed {var.name!r}: the shape does not match: expected {list(var.shape)} (-1 is any size), received"
            f" {list(data.shape)}; reshape the data or declare the variable with the shape you feed"
        )
    return data


def _dtype_matters(var: VarView, fed: np.dtype, expected: np.dtype) -> bool:
    if var.need_check_feed:
        return True
    from_numpy(fed)
    both_integers = np.issubdtype(fed, np.integer) and np.issubdtype(expected, np.integer)
    return not both_integers


def _shape_fits(declared: tuple[int, ...], fed: tuple[int, ...]) -> bool:
    return len(declared) == len(fed) and all(d < 0 or d == f for d, f in zip(declared, fed, strict=True))


def merge_rows(parts: Sequence[Any]) -> Any:
    """Feeds of several devices as one: their rows concatenated, and their sequences too."""
    if not any(isinstance(part, LoDTensor) for part in parts):
        return np.concatenate([np.asarray(part) for part in parts])
    merged = LoDTensor()
    merged._set_value(np.concatenate([np.array(part) for part in parts]))
    lengths = [part.recursive_sequence_lengths() for part in parts]
    if all(lengths):
        merged.set_recursive_sequence_lengths([sum(level, []) for level in zip(*lengths, strict=True)])
    return merged
