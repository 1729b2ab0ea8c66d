"""Row capacities: a ragged batch is padded to the next bucket, so that one compilation serves many batches."""

from __future__ import annotations

from math import prod, sqrt
from typing import Any

import numpy as np

from lowering.program import ROLE_OPTIMIZE, ProgramView

# Tiny batches share the smallest bucket.
SMALLEST = 8
# Every batch has room for as many rows as take no more than about this many operations: a few milliseconds.
_CHEAP, _OPERATIONS = 64, 2_000_000_000
# Dims that are declared to be of any size have room for as many places at first, if a run takes no more operations.
_PLACES, _ALL_OPERATIONS = 128, 2_500_000_000
# Of a sum of lengths: how many deviations from another such sum are hardly ever met.
_FAR = 3


def operations_of_row(program: ProgramView) -> int:
    """How many operations a row takes.

    It is assumed to meet every weight once, or three times with a backward pass; tables are only looked up, and what an
    optimizer keeps beside the weights meets no row.
    """
    ops = [op for block in program.blocks for op in block.ops if not int(op.attrs.get("op_role", 0)) & ROLE_OPTIMIZE]
    read = {name for op in ops for name in op.input_names()}
    tables = {name for op in ops if op.type in _LOOKUPS for name in op.inputs.get("W") or ()}
    weights = (v for v in program.blocks[0].vars.values() if v.persistable and len(v.shape) > 1)
    return 6 * sum(prod(map(abs, v.shape)) for v in weights if v.name in read - tables)


def least_rows(program: ProgramView) -> int:
    """A number of rows so cheap that fewer would gain nothing: a power of 2 from SMALLEST to 64."""
    return _affordable(_OPERATIONS, operations_of_row(program), _CHEAP)


def first_places(operations: int) -> int:
    """How many places a dim of unknown size has at first, each of which takes so many operations."""
    return _affordable(_ALL_OPERATIONS, operations, _PLACES)


def _affordable(budget: int, each: int, most: int) -> int:
    return max(SMALLEST, min(most, 1 << max(budget // max(each, 1), 1).bit_length() - 1))


def sum_of_others(lengths: np.ndarray) -> int:
    """What the sum of as many other lengths will hardly ever exceed, judged by how much these differ."""
    if not len(lengths):
        return 0
    beyond = _FAR * float(lengths.std()) * sqrt(2 * len(lengths))
    return finer(min(int(lengths.sum() + beyond), len(lengths) * int(lengths.max())))


_LOOKUPS = frozenset({"lookup_table", "lookup_table_v2"})


def bucket(n: int) -> int:
    """The smallest of {2^k, 3 * 2^(k-1)} that is at least ``n`` (and at least ``SMALLEST``).

    From ``SMALLEST`` on less than a third of the rows are padding, as neighbours are in a ratio of at most 3 / 2; and
    up to size n there are only about 2 log2(n) buckets to compile for.
    """
    if n <= SMALLEST:
        return SMALLEST
    power = 1 << (n - 1).bit_length()
    return power * 3 // 4 if n <= power * 3 // 4 else power


def enlarged(capacity: int, flag: Any) -> int:
    """The capacity of a buffer that was too small: the bucket of what its flag says it needs, or twice as much."""
    return 2 * capacity if flag.dtype == bool else bucket(max(int(flag), capacity + 1))


def finer(n: int) -> int:
    """The smallest number from ``n`` on that is four binary digits and zeros: less than an eighth of it is padding."""
    step = 1 << max(n.bit_length() - 4, 0)
    return -(-n // step) * step


def pad_rows(data: np.ndarray, capacity: int) -> np.ndarray:
    """``data`` with copies of its first row appended (I1); zeros when there is no row at all."""
    rows = data.shape[0]
    if rows == capacity:
        return data
    padded = np.empty((capacity, *data.shape[1:]), data.dtype)
    padded[:rows] = data
    padded[rows:] = data[0] if rows else 0
    return padded


def pad_offsets(offsets: np.ndarray, count: int) -> np.ndarray:
    """Offsets of ``count`` sequences: the last offset is repeated, so the added sequences are empty."""
    return np.concatenate([offsets, np.full(count + 1 - len(offsets), offsets[-1], offsets.dtype)])
