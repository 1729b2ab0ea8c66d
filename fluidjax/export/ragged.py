"""Variable-length sequences for functions created by ``to_jax``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from fluidjax.base.errors import explain
from fluidjax.base.lod import lengths_to_offsets, lod_fault
from fluidjax.execution.rooms.buckets import bucket
from fluidjax.execution.scopes.exchange import lod_array, usual_room
from lowering.values import LoDArray


def ragged(rows: Any, lengths: Sequence[Any], room: int = 0) -> LoDArray:
    """Sequences of rows as a single pytree, to be passed to a function created by ``to_jax``.

    The rows are padded to a capacity, and the number of valid rows is data, so that one compiled function serves all
    values with the same capacity and number of sequences.

    Args:
        rows: array [total, ...], the concatenated sequences.
        lengths: lengths of the sequences; for several levels, a list of lists, outermost first.
        room: minimum capacity, in rows.

    Returns a ``lowering.values.LoDArray``: ``data`` [capacity, ...], ``lod`` (offsets), ``nrows``.

    Raises ValueError if the lengths do not add up to the number of rows.
    """
    levels = [list(lengths)] if not lengths or np.ndim(lengths[0]) == 0 else [list(level) for level in lengths]
    lod = lengths_to_offsets(levels)
    data = np.asarray(rows)
    fault = lod_fault(lod, data.shape[0])
    if fault:
        raise ValueError(
            explain(
                f"ragged: the lengths do not fit: {fault}",
                f"lengths that add up to {data.shape[0]} rows",
                str(levels),
                "give the length of each sequence",
            )
        )
    longest = tuple(bucket(max(level, default=1)) for level in levels)
    usual, *inner = usual_room(data.shape[0], lod)
    value = lod_array(data, lod, room=(max(usual, room), *inner), longest=longest)
    return jax.tree_util.tree_map(jax.numpy.asarray, value)
