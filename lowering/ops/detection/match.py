"""Matching priors to ground truth: bipartite_match, target_assign, mine_hard_examples.

The outcome determines which rows exist, so these run on the host, on unpadded rows, image by image.
"""

from __future__ import annotations

import numpy as np

from lowering.dtypes import FP32, INT32
from lowering.ops.detection import roomy_match as roomy
from lowering.program import VarInfo
from lowering.registry import Value, op
from lowering.values import LoDArray, data_of, exact

# A distance below this counts as no overlap at all.
_EPSILON = 1e-6


def host(value) -> tuple[np.ndarray, np.ndarray]:
    """(rows, offsets of the finest level) of a value; one sequence when it has no LoD."""
    value = exact(value)
    data = np.asarray(data_of(value))
    if isinstance(value, LoDArray) and value.lod:
        return data, np.asarray(value.lod[-1])
    return data, np.array([0, data.shape[0]], np.int32)


def _bipartite(dist: np.ndarray, rows: np.ndarray, found: np.ndarray) -> None:
    """Greedy matching: the largest remaining distance joins its row and column, until no rows or overlaps remain."""
    remaining = np.where(dist >= _EPSILON, dist, -1.0)
    for _ in range(dist.shape[0]):
        row, column = np.unravel_index(int(np.argmax(remaining)), remaining.shape)
        if remaining[row, column] < 0:
            return
        rows[column], found[column] = row, dist[row, column]
        remaining[row, :] = -1
        remaining[:, column] = -1


def _per_prediction(dist: np.ndarray, rows: np.ndarray, found: np.ndarray, threshold: float) -> None:
    """Match free columns to their best row, if it reaches the threshold."""
    for column in np.flatnonzero(rows < 0):
        best = int(np.argmax(dist[:, column]))
        value = dist[best, column]
        if value >= _EPSILON and value >= threshold:
            rows[column], found[column] = best, value


def _infer_matched(op_view, var_of):
    dist = var_of(op_view.inputs["DistMat"][0])
    # Fluid declares the rows of the distances; a run has one row for each image.
    shape = tuple(dist.shape) if dist is not None and dist.shape else None
    return {
        op_view.outputs["ColToRowMatchIndices"][0]: VarInfo(shape, INT32, 0),
        op_view.outputs["ColToRowMatchDist"][0]: VarInfo(shape, dist.dtype if dist is not None else None, 0),
    }


@op(
    "bipartite_match",
    out="ColToRowMatchIndices ColToRowMatchDist",
    diff="",
    lod=None,
    kind="host",
    moves="late",
    infer=_infer_matched,
)
def bipartite_match(dist_mat: Value, *, match_type: str = "bipartite", dist_threshold: float = 0.5):
    """For each image (a sequence of rows of DistMat [rows, M]), the row matched to each of M columns, -1 for none.

    The largest distance is matched first, each row once; with match_type ``per_prediction``, free columns are then
    matched to their best row if it reaches ``dist_threshold``. Indices int32 [N, M], distances [N, M]. A host op.
    """
    data, offsets = host(dist_mat)
    shape = (len(offsets) - 1, data.shape[1])
    rows, found = np.full(shape, -1, np.int32), np.zeros(shape, data.dtype)
    for i, (start, end) in enumerate(zip(offsets[:-1], offsets[1:], strict=True)):
        dist = data[start:end]
        if not len(dist):
            continue
        _bipartite(dist, rows[i], found[i])
        if match_type == "per_prediction":
            _per_prediction(dist, rows[i], found[i], dist_threshold)
    return rows, found


bipartite_match.with_room(roomy.bipartite)


def _infer_assigned(op_view, var_of):
    x, match = (var_of(op_view.inputs[slot][0]) for slot in ("X", "MatchIndices"))
    out, weight = (op_view.outputs[slot][0] for slot in ("Out", "OutWeight"))
    if x is None or match is None or not x.shape or not match.shape:
        return {weight: VarInfo(None, FP32, 0)}
    found = tuple(match.shape)
    return {out: VarInfo((*found, x.shape[-1]), x.dtype, 0), weight: VarInfo((*found, 1), FP32, 0)}


@op(out="Out OutWeight", diff="", lod=None, kind="host", moves="late", infer=_infer_assigned)
def target_assign(x: Value, match_indices: Value, neg_indices: Value = None, *, mismatch_value: int = 0):
    """Out[i, j] = row MatchIndices[i, j] of the i-th sequence of X, with OutWeight 1, where it is matched.

    X is [rows, P, K], its row for column j is X[row, j % P]. Elsewhere Out is ``mismatch_value`` with weight 0, but
    weight 1 at the columns of NegIndices (LoD, [Q, 1]). Out [N, M, K], OutWeight [N, M, 1]. Runs on the host.
    """
    data, offsets = host(x)
    match = np.asarray(data_of(exact(match_indices)))
    images, columns = match.shape
    data = data.reshape(data.shape[0], -1, data.shape[-1])
    out = np.full((images, columns, data.shape[-1]), mismatch_value, data.dtype)
    weight = np.zeros((images, columns, 1), np.float32)
    i, j = np.nonzero(match >= 0)
    out[i, j] = data[offsets[i] + match[i, j], j % data.shape[1]]
    weight[i, j] = 1
    if neg_indices is not None:
        negative, ends = host(neg_indices)
        for image in range(images):
            chosen = negative[ends[image] : ends[image + 1]].reshape(-1)
            out[image, chosen], weight[image, chosen] = mismatch_value, 1
    return out, weight


target_assign.with_room(roomy.assigned)


def _infer_mined(op_view, var_of):
    match = var_of(op_view.inputs["MatchIndices"][0])
    found = {op_view.outputs["NegIndices"][0]: VarInfo((-1, 1), 2, 0)}
    if match is not None:
        found[op_view.outputs["UpdatedMatchIndices"][0]] = VarInfo(tuple(match.shape), 2, 0)
    return found


def _hardest(loss: np.ndarray, candidates: np.ndarray, count: int) -> np.ndarray:
    """The ``count`` candidates with the largest loss, in increasing order of index."""
    order = np.argsort(-loss[candidates], kind="stable")[:count]
    return np.sort(candidates[order])


@op(out="NegIndices UpdatedMatchIndices", diff="", lod=None, kind="host", moves="late", infer=_infer_mined)
def mine_hard_examples(
    cls_loss: Value,
    match_indices: Value,
    match_dist: Value,
    loc_loss: Value = None,
    *,
    neg_pos_ratio: float = 1.0,
    neg_dist_threshold: float = 0.5,
    sample_size: int = 0,
    mining_type: str = "max_negative",
):
    """Hard negatives: NegIndices (LoD, int32 [Q, 1]), and MatchIndices without the columns not sampled.

    ``max_negative``: unmatched columns below ``neg_dist_threshold``, at most ``neg_pos_ratio`` per matched column.
    ``hard_example``: the ``sample_size`` columns with the largest ClsLoss + LocLoss; other matches are dropped.
    Runs on the host.
    """
    cost = np.asarray(data_of(exact(cls_loss))).reshape(np.shape(data_of(match_indices)))
    match = np.asarray(data_of(exact(match_indices))).copy()
    dist = np.asarray(data_of(exact(match_dist)))
    hard = mining_type == "hard_example"
    if hard and loc_loss is not None:
        cost = cost + np.asarray(data_of(exact(loc_loss))).reshape(match.shape)
    negatives, offsets = [], [0]
    for i in range(match.shape[0]):
        if hard:
            chosen = _hardest(cost[i], np.arange(match.shape[1]), sample_size)
            match[i, np.setdiff1d(np.flatnonzero(match[i] >= 0), chosen)] = -1
            picked = chosen[match[i, chosen] < 0]
        else:
            candidates = np.flatnonzero((match[i] == -1) & (dist[i] < neg_dist_threshold))
            most = np.float32(np.count_nonzero(match[i] != -1)) * np.float32(neg_pos_ratio)  # as Paddle multiplies
            picked = _hardest(cost[i], candidates, int(most))
        negatives.append(picked)
        offsets.append(offsets[-1] + len(picked))
    rows = np.concatenate(negatives).astype(np.int32).reshape(-1, 1)
    return LoDArray(rows, (np.asarray(offsets, np.int32),)), match


mine_hard_examples.with_room(roomy.hard_examples)
