"""Gathering, scattering, sorting and searching."""

import numpy as np

from fluidjax.testing.case import case, distinct, flags, integers, normal


def _gather_nd(X, Index):
    return X[tuple(np.moveaxis(Index, -1, 0))]


def _scattered(X, Index, Updates):
    out = X.copy()
    np.add.at(out, tuple(np.moveaxis(Index, -1, 0)), Updates)
    return out


def _summed(X, Ids, Updates, overwrite):
    out = X.copy()
    out[Ids] = 0
    np.add.at(out, Ids, Updates)
    return out


def _replaced(X, Ids, Updates):
    out = X.copy()
    for i, row in zip(Ids, Updates, strict=True):
        out[i] = row
    return out


def _top(X, k):
    order = np.argsort(-X, -1)[:, :k]
    return np.take_along_axis(X, order, -1), order


def _beams(Ids, Parents):
    out = Ids.copy()
    beam = np.tile(np.arange(Ids.shape[2]), (Ids.shape[1], 1))
    for t in reversed(range(len(Ids))):
        out[t] = np.take_along_axis(Ids[t], beam, 1)
        beam = np.take_along_axis(Parents[t], beam, 1)
    return out


_ROWS = np.array([2, 0, 2, 3])
_UPDATES = {"X": normal(5, 3), "Ids": _ROWS, "Updates": normal(4, 3)}
_PLACES = np.array([[0, 1], [2, 2], [0, 1]])

CASES = [
    case(
        "gather", {"X": normal(5, 3), "Index": np.array([[3], [0]])}, label="once", reference=lambda X, Index: X[[3, 0]]
    ),
    case(
        "gather",
        {"X": normal(5, 3), "Index": _ROWS},
        {"overwrite": False},
        reference=lambda X, Index, overwrite: X[Index],
    ),
    case("gather", {"X": normal(5, 3), "Index": _ROWS}, label="overwrite", smooth=False),
    case("gather_nd", {"X": normal(3, 4, 2), "Index": _PLACES}, reference=_gather_nd),
    case("scatter", _UPDATES, reference=_replaced, smooth=False),
    case("scatter", _UPDATES, {"overwrite": False}, "add", reference=_summed, wrt=("Updates",)),
    case("scatter_nd_add", {"X": normal(3, 4), "Index": _PLACES, "Updates": normal(3)}, reference=_scattered),
    case(
        "index_select",
        {"X": normal(4, 5), "Index": np.array([4, 1, 4])},
        {"dim": 1},
        reference=lambda X, Index, dim: X[:, Index],
    ),
    case(
        "index_sample",
        {"X": normal(4, 5), "Index": integers(0, 5, 4, 3)},
        reference=lambda X, Index: np.take_along_axis(X, Index, 1),
    ),
    case(
        "multiplex",
        {"Ids": np.array([[1], [0], [1]], np.int32), "X": [normal(3, 2), normal(3, 2)]},
        reference=lambda Ids, X: np.stack([X[1][0], X[0][1], X[1][2]]),
    ),
    case(
        "where",
        {"Condition": flags(4, 3), "X": normal(4, 3), "Y": normal(4, 3)},
        reference=lambda Condition, X, Y: np.where(Condition, X, Y),
    ),
    case(
        "shard_index",
        integers(0, 20, 6, 1),
        {"index_num": 20, "nshards": 2, "shard_id": 1},
        reference=lambda X, **a: np.where(X // 10 == 1, X % 10, -1),
    ),
    case(
        "gather_tree",
        {"Ids": integers(0, 9, 3, 2, 2), "Parents": integers(0, 2, 3, 2, 2)},
        reference=_beams,
    ),
    case("top_k", distinct(4, 5), {"k": 2}, reference=_top),
    case(
        "top_k",
        {"X": distinct(4, 5), "K": np.array([3], np.int32)},
        label="tensor",
        reference=lambda X, K: _top(X, 3),
    ),
    case("argsort", distinct(4, 5), reference=lambda X: (np.sort(X), np.argsort(X))),
    case(
        "argsort",
        distinct(4, 5),
        {"axis": 0, "descending": True},
        "down",
        reference=lambda X, **a: (-np.sort(-X, 0), np.argsort(-X, 0)),
    ),
]
