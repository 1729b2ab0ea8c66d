"""Levels of detail (LoD): offsets, lengths, and validation."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

Lod = list[list[int]]


def checked_levels(levels: Any, what: str) -> Lod:
    """Lists of lists of integers from 0 on, as they are. Raises TypeError for anything else."""
    try:
        found = [[operator.index(n) for n in level] for level in levels]
    except TypeError:
        found = [[-1]]
    if any(n < 0 for level in found for n in level):
        raise TypeError(
            f"{what}: expected a list of lists of integers from 0 on, received {levels!r:.80}. Pass [[2, 3]]."
        )
    return found


def lengths_to_offsets(lengths: Sequence[Sequence[int]]) -> Lod:
    """[[2, 3]] -> [[0, 2, 5]]."""
    return [[0, *np.cumsum(np.asarray(level, np.int64)).tolist()] for level in lengths]


def offsets_to_lengths(lod: Sequence[Sequence[int]]) -> Lod:
    """[[0, 2, 5]] -> [[2, 3]]."""
    return [np.diff(np.asarray(level, np.int64)).tolist() for level in lod]


def lod_fault(lod: Sequence[Sequence[int]], rows: int | None) -> str | None:
    """The reason why offsets `lod` are invalid for `rows` rows (None: unknown), or None.

    A level starts at 0, does not decrease, has at least two entries, and its last entry is the number of
    entries of the next finer level minus one; the finest ends at the number of rows.
    """
    for depth, level in enumerate(lod):
        if len(level) < 2:
            return f"level {depth} has {len(level)} entries, at least 2 are needed"
        if level[0] != 0:
            return f"level {depth} starts at {level[0]}, not at 0"
        if list(level) != sorted(level):
            return f"level {depth} decreases: {list(level)}"
        finest = depth == len(lod) - 1
        end = rows if finest else len(lod[depth + 1]) - 1
        if end is not None and level[-1] != end:
            of = "the tensor's rows" if finest else f"the sequences of level {depth + 1}"
            return f"level {depth} ends at {level[-1]}, but there are {end} of {of}"
    return None
