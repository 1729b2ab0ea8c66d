"""Inputs and outputs of a served model: rows with their LoD, validated against the model's declarations."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fluidjax.base.lod import Lod, lod_fault
from fluidjax.serving.errors import bad_input


class Tensor(NamedTuple):
    """An array with the offsets of its sequences; [] if it is dense."""

    rows: np.ndarray
    lod: Lod

    @property
    def samples(self) -> int | None:
        """The number of sequences or, if dense, rows; None for a scalar."""
        if self.lod:
            return len(self.lod[0]) - 1
        return self.rows.shape[0] if self.rows.ndim else None


def in_words(tensors: Mapping[str, Tensor]) -> str:
    """Names, dtypes and shapes, for messages."""
    return ", ".join(f"{name} {t.rows.dtype}{list(t.rows.shape)}" for name, t in tensors.items())


@dataclass(frozen=True)
class Variable:
    """An input or output as declared by the model; -1 in ``shape`` stands for any size."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    lod_level: int

    def in_words(self) -> str:
        """dtype, shape and LoD, for messages."""
        return f"{self.dtype} of shape {list(self.shape)} (-1: any size)" + (
            f" with {self.lod_level} levels of LoD" if self.lod_level else ""
        )

    def accept(self, given: np.ndarray, lod: Lod) -> Tensor:
        """Convert a received value to this input. Raises Refused if it does not match."""
        rows = self._typed(self._shaped(given))
        fault = lod_fault(lod, rows.shape[0] if rows.ndim else 0)
        if len(lod) != self.lod_level or fault:
            raise bad_input(
                f"input {self.name!r}: its LoD does not fit",
                f"{self.lod_level} levels of offsets, each from 0 to the next one's number of sequences, the last one"
                " to the number of rows",
                fault or f"{len(lod)} levels",
                "send sequences as a list of lists, or offsets such as [[0, 2, 5]] for lengths 2 and 3",
            )
        return Tensor(rows, lod)

    def _shaped(self, given: np.ndarray) -> np.ndarray:
        """Add the trailing dimension of single-element rows if it was omitted."""
        rows = given[..., None] if self.shape[-1:] == (1,) and given.ndim == len(self.shape) - 1 else given
        fits = rows.ndim == len(self.shape) and all(
            d < 0 or d == n for d, n in zip(self.shape, rows.shape, strict=True)
        )
        if not fits:
            raise bad_input(
                f"input {self.name!r}: the shape does not fit",
                self.in_words(),
                f"shape {list(given.shape)}",
                "send it in the declared shape",
            )
        return rows

    def _typed(self, given: np.ndarray) -> np.ndarray:
        """The rows in the declared dtype, provided no value changes by more than rounding."""
        kinds = {"b": "b", "i": "iu", "u": "iu"}.get(self.dtype.kind, "fiu")
        if given.dtype.kind in kinds or not given.size and given.dtype.kind == "f":
            with np.errstate(over="ignore"):
                rows = given.astype(self.dtype)
            same = np.isfinite(rows) == np.isfinite(given) if kinds == "fiu" else rows == given
            if np.all(same):
                return rows
        raise bad_input(
            f"input {self.name!r}: the values are not of its data type",
            f"numbers that fit {self.dtype}",
            "numbers out of its range" if given.dtype.kind in kinds else f"{_KINDS.get(given.dtype.kind, 'others')}",
            f"send {self.dtype}",
        )


_KINDS = {"b": "true and false", "i": "whole numbers", "u": "whole numbers", "f": "numbers with fractions", "U": "text"}


def check_room(name: str, shape: tuple[int, ...], itemsize: int, limit: int) -> None:
    """Reject a shape that exceeds ``limit`` bytes, or would with one more row, such as (0, 10**12)."""
    room = math.prod(max(n, 1) for n in shape) * max(itemsize, 1)
    if room > limit:
        raise bad_input(
            f"input {name!r}: the shape is too large",
            f"at most {limit} bytes",
            f"shape {list(shape)}, {room} bytes",
            "send fewer samples at once, or start the server with a larger --max-body",
        )
