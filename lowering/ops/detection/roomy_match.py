"""Matching priors to ground truth over traced values: the results of exported functions (see ``Rule.with_room``)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lowering.ragged.rows import offsets_of, row_numbers, segments
from lowering.values import Array, LoDArray, data_of, fill_padding

_EPSILON = 1e-6  # as in ``match``


def offsets_or_all(value: Any) -> Array:
    """Offsets of the finest level; one sequence of all rows when there is no LoD."""
    lod, rows = getattr(value, "lod", ()), getattr(value, "nrows", None)
    if lod:
        return lod[-1]
    return np.array([0, data_of(value).shape[0]], np.int32) if rows is None else offsets_of(rows[None])


def own_rows(value: Any) -> Array:
    """bool [N, rows]: which rows belong to which sequence."""
    offsets = offsets_or_all(value)
    images = np.arange(offsets.shape[0] - 1, dtype=np.int32)[:, None]
    return segments(offsets, row_numbers(data_of(value).shape[0])) == images


def _matched(dist: Array, own: Array) -> tuple[Array, Array]:
    """Rows [M] and distances [M] of one image's greedy matching: the largest distance joins its row and column."""
    rows, columns = dist.shape
    remaining = jnp.where(own[:, None] & (dist >= _EPSILON), dist, -1.0)

    def step(_, state):
        remaining, match, found = state
        at = jnp.argmax(remaining)
        row, column = at // columns, at % columns
        value = remaining[row, column]
        taken = value >= 0
        match = jnp.where(taken & (np.arange(columns) == column), row.astype(np.int32), match)
        found = jnp.where(taken & (np.arange(columns) == column), value, found)
        gone = (np.arange(rows)[:, None] == row) | (np.arange(columns) == column)
        return jnp.where(gone, -1.0, remaining), match, found

    start = remaining, jnp.full(columns, -1, np.int32), jnp.zeros(columns, dist.dtype)
    _, match, found = jax.lax.fori_loop(0, min(rows, columns), step, start)
    return match, found


def bipartite(dist_mat: Any, *, match_type: str, dist_threshold: float):
    """The results of ``bipartite_match``; rows count from the first of their image."""
    dist, own = jnp.asarray(data_of(dist_mat)), own_rows(dist_mat)
    rows, found = jax.vmap(lambda mine: _matched(dist, mine))(own)
    if match_type == "per_prediction":
        masked = jnp.where(own[..., None], dist, -jnp.inf)
        best, value = jnp.argmax(masked, axis=1).astype(np.int32), jnp.max(masked, axis=1)
        free = (rows < 0) & (value >= _EPSILON) & (value >= dist_threshold)
        rows, found = jnp.where(free, best, rows), jnp.where(free, value, found)
    return jnp.where(rows < 0, rows, rows - jnp.asarray(offsets_or_all(dist_mat))[:-1, None]), found


def assigned(x: Any, match_indices: Any, neg_indices: Any, *, mismatch_value: int):
    """The results of ``target_assign``."""
    data, match = jnp.asarray(data_of(x)), jnp.asarray(data_of(match_indices))
    data, columns = data.reshape(data.shape[0], -1, data.shape[-1]), match.shape[1]
    rows = jnp.asarray(offsets_or_all(x))[:-1, None] + jnp.maximum(match, 0)
    hit = (match >= 0)[..., None]
    out = jnp.where(hit, data[rows, np.arange(columns) % data.shape[1]], jnp.asarray(mismatch_value, data.dtype))
    weight = hit.astype(np.float32)
    if neg_indices is not None:
        chosen = data_of(neg_indices).reshape(-1)
        negative = (
            jnp.zeros((match.shape[0], columns), np.int32).at[:, chosen].max(own_rows(neg_indices).astype(np.int32))
        )
        negative = negative[..., None] > 0
        out = jnp.where(negative, jnp.asarray(mismatch_value, data.dtype), out)
        weight = jnp.where(negative, np.float32(1), weight)
    return out, weight


def _hardest(cost: Array, candidates: Array, count: Array | int) -> Array:
    """bool [N, M]: of the candidates the ``count`` [N, 1] with the largest cost."""
    order = jnp.argsort(jnp.where(candidates, -cost, jnp.inf), axis=1, stable=True)
    return candidates & (jnp.argsort(order, axis=1) < count)


def hard_examples(
    cls_loss: Any, match_indices: Any, match_dist: Any, loc_loss: Any, *, neg_pos_ratio, neg_dist_threshold,
    sample_size, mining_type,
):  # fmt: skip
    """The results of ``mine_hard_examples``."""
    match, dist = jnp.asarray(data_of(match_indices)), jnp.asarray(data_of(match_dist))
    cost = jnp.asarray(data_of(cls_loss)).reshape(match.shape)
    if mining_type == "hard_example":
        cost = cost if loc_loss is None else cost + data_of(loc_loss).reshape(match.shape)
        chosen = _hardest(cost, jnp.ones(match.shape, bool), sample_size)
        match = jnp.where(chosen, match, jnp.minimum(match, -1))
        picked = chosen & (match < 0)
    else:
        count = jnp.sum(match != -1, axis=1, keepdims=True) * jnp.asarray(neg_pos_ratio, np.float32)
        picked = _hardest(cost, (match == -1) & (dist < neg_dist_threshold), jnp.floor(count))
    offsets = offsets_of(jnp.sum(picked, axis=1, dtype=np.int32))
    columns = jnp.nonzero(picked, size=picked.size, fill_value=0)[1].astype(np.int32)[:, None]
    return LoDArray(fill_padding(columns, offsets[-1], backward=False), (offsets,), offsets[-1]), match
