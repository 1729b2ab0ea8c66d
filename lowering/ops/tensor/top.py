"""The k largest values of each row.

XLA:CPU sorts rows partially and one by one, and all but float32 rows as a whole. A few candidates are found in a
vectorised pass instead, and only these are sorted.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

# float32 rows narrower than this, or fewer numbers in all, are sorted as they are; so are rows of few times k.
_WIDE, _MANY = 768, 1 << 15
# Other dtypes have no partial sort.
_WIDE_WITHOUT = 96
_TIMES_K = 12


def largest(x: Any, k: int, platform: str) -> tuple[Any, Any]:
    """``lax.top_k`` over the last dim, by the fastest way for the platform and the shape; all give equal results.

    Returns:
        the values, falling, and their int32 places. Of equal values the first counts; NaN is above infinity.
    """
    width = x.shape[-1]
    if platform != "cpu" or not _pays(x, k):
        # The barriers keep a slice of a result from being merged into it: XLA:CPU would then sort the whole rows. There
        # is one for each: spread over several devices, XLA fails on one for both.
        values, places = map(lax.optimization_barrier, lax.top_k(x, k))
        return values, places
    rows = jnp.asarray(x).reshape(-1, width)
    values, places = _among_groups(rows, k, group_size(width, k), platform)
    return values.reshape(*x.shape[:-1], k), places.reshape(*x.shape[:-1], k)


def _pays(x: Any, k: int) -> bool:
    width = x.shape[-1]
    if k < 1 or x.size == 0 or width < _TIMES_K * k:
        return False
    if np.dtype(x.dtype) == np.float32:
        return bool(width >= _WIDE and x.size >= _MANY)
    return bool(width >= _WIDE_WITHOUT)


def group_size(width: int, k: int) -> int:
    """A size of groups for which few numbers must be sorted: width / size maxima, then k * size candidates.

    Near the best one, a divisor of the width if there is one: then no group is left over.
    """
    best = max(2, round((width / k) ** 0.5))
    near = [size for size in range(max(2, best * 3 // 4), best * 4 // 3 + 1) if width % size == 0]
    return min(near, key=lambda size: abs(size - best), default=best)


def _among_groups(rows: Any, k: int, size: int, platform: str) -> tuple[Any, Any]:
    """The k largest of each row [n, width], found among few candidates.

    Cut into groups of neighbours, a row has its k largest values in the k groups with the largest maxima: an element
    elsewhere has k elements before it, as large or larger ones in these groups, and of equally large ones those at
    earlier places. The rest that fills no group takes part unchanged. Candidates stay in the order of their places.
    """
    count, kept = rows.shape[0], rows.shape[1] // size * size
    best = jnp.max(sort_keys(rows)[:, :kept].reshape(count, kept // size, size), axis=2)
    _, chosen = largest(_of_keys(best, rows.dtype), k, platform)
    first = jnp.sort(chosen, axis=1) * np.int32(size)
    candidates = _slices(rows, first, size).reshape(count, k * size)
    places = (first[:, :, None] + np.arange(size, dtype=np.int32)).reshape(count, k * size)
    if kept < rows.shape[1]:
        rest = np.arange(kept, rows.shape[1], dtype=np.int32)
        candidates = jnp.concatenate([candidates, rows[:, kept:]], axis=1)
        places = jnp.concatenate([places, jnp.broadcast_to(rest, (count, len(rest)))], axis=1)
    values, at = largest(candidates, k, platform)
    return values, jnp.take_along_axis(places, at, axis=1, mode="promise_in_bounds")


def _slices(rows: Any, first: Any, size: int) -> Any:
    """[n, k, size]: of each row, ``size`` elements from each of its k places ``first``."""
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(2,),
        collapsed_slice_dims=(),
        start_index_map=(1,),
        operand_batching_dims=(0,),
        start_indices_batching_dims=(0,),
    )
    return lax.gather(rows, first[:, :, None], numbers, (1, size), mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS)


def sort_keys(x: Any) -> Any:
    """Integers in the order of ``lax.top_k``, which tells -0 from 0 and NaNs by their bits; x itself if not floats."""
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return x
    return _flipped(lax.bitcast_convert_type(x, f"int{8 * x.dtype.itemsize}"))


def _of_keys(keys: Any, dtype: Any) -> Any:
    """The numbers whose ``sort_keys`` these are."""
    if keys.dtype == dtype:
        return keys
    return lax.bitcast_convert_type(_flipped(keys), dtype)


def _flipped(bits: Any) -> Any:
    """The bits of negative floats turned around, so that they order as integers; its own inverse."""
    info = np.iinfo(bits.dtype)
    return bits ^ ((bits >> (info.bits - 1)) & np.array(info.max, bits.dtype))
