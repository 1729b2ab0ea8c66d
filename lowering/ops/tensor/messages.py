"""Message passing along the edges of a graph, and pooling of rows by segment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lowering.ops.shared import concrete, concrete_scalar, outputs_like
from lowering.ops.tensor.search import distinct
from lowering.program import VarInfo
from lowering.registry import Longs, op
from lowering.values import LoDArray, data_of

_POOLS: dict[str, Callable[..., Any]] = {
    "SUM": jax.ops.segment_sum,
    "MEAN": jax.ops.segment_sum,
    "MAX": jax.ops.segment_max,
    "MIN": jax.ops.segment_min,
}
_MESSAGES: dict[str, Callable[..., Any]] = {"ADD": jnp.add, "MUL": jnp.multiply}


def pooled(rows: Any, ids: Any, count: int, kind: str) -> tuple[Any, Any]:
    """(rows pooled by id, how many each id has); zeros where an id has none."""
    numbers = jax.ops.segment_sum(jnp.ones(ids.shape, np.int32), ids, count)
    wide = numbers.reshape(-1, *[1] * (rows.ndim - 1))
    found = _POOLS[kind](rows, ids, count)
    if kind == "MEAN":
        found = found / jnp.maximum(wide, 1).astype(rows.dtype)
    return jnp.where(wide > 0, found, jnp.zeros_like(found)), numbers


@op(out="Out SummedIds?~", slots={"segment_ids": "SegmentIds"}, diff="x", lod=None, grad="vjp", reads="x segment_ids")
def segment_pool(x, segment_ids, *, pooltype: str = "SUM"):
    """Out[i] = the sum (MEAN, MAX, MIN) of the rows of X with SegmentIds (nondecreasing) equal to i; 0 if none."""
    count = int(concrete_scalar(segment_ids[-1:], "segment_pool: the last segment")) + 1 if segment_ids.size else 0
    out, numbers = pooled(x, segment_ids, count, pooltype)
    return out, numbers.astype(x.dtype)[:, None] if pooltype == "MEAN" else None


def _size(given: Any, size: Sequence[int], x: Any) -> int:
    """How many rows come out: the tensor's, the attribute's, or as many as went in."""
    stated = int(concrete(given, "graph_send_recv: Out_size").reshape(-1)[0]) if given is not None else 0
    return stated or (int(size[0]) if len(size) and size[0] > 0 else x.shape[0])


_EDGES = {"src_index": "Src_index", "dst_index": "Dst_index"}


@op(out="Out Dst_count~", slots={**_EDGES, "size": "Out_size"}, diff="x", lod=None, grad="vjp",
    reads="x src_index dst_index size")  # fmt: skip
def graph_send_recv(x, src_index, dst_index, size=None, *, reduce_op: str = "SUM", out_size: Longs = (0,)):
    """Out[d] = the sum (MEAN, MAX, MIN) of X[s] over the edges s -> d; Dst_count = the number of these."""
    return pooled(x[src_index], dst_index, _size(size, out_size, x), reduce_op)


@op(out="Out Dst_count~", slots={**_EDGES, "size": "Out_size"}, diff="x y", lod=None, grad="vjp",
    reads="x y src_index dst_index size")  # fmt: skip
def graph_send_ue_recv(
    x, y, src_index, dst_index, size=None, *, message_op: str = "ADD", reduce_op: str = "SUM", out_size: Longs = (0,)
):
    """As graph_send_recv, for X[s] + Y[e] (or their product), where Y holds edge features."""
    return pooled(_MESSAGES[message_op](x[src_index], y), dst_index, _size(size, out_size, x), reduce_op)


@op(out="out", slots={n: n for n in ("x", "y", "src_index", "dst_index")}, diff="x y", lod=None, grad="vjp",
    reads="x y src_index dst_index")  # fmt: skip
def graph_send_uv(x, y, src_index, dst_index, *, message_op: str = "ADD"):
    """out[e] = x[s] + y[d] (or their product) for each edge e from s to d."""
    return _MESSAGES[message_op](x[src_index], y[dst_index])


def _infer_reindex(op, var_of):
    dtype = var_of(op.inputs["X"][0]).dtype
    found: dict[str, Any] = {}
    for slot in ("Reindex_Src", "Reindex_Dst", "Out_Nodes"):
        found |= outputs_like(op, slot, VarInfo((-1,), dtype, 0))
    return found


@op(
    out="Reindex_Src Reindex_Dst Out_Nodes", kind="host", infer=_infer_reindex, diff="", lod=None,
    slots={"hash_value": "HashTable_Value", "hash_index": "HashTable_Index"},
)  # fmt: skip
def graph_reindex(x, neighbors, count, hash_value=None, hash_index=None):
    """The edges from the neighbors [E] of the nodes X [N], by the nodes' places in Out_Nodes. A host op.

    Out_Nodes: X, then the other neighbors in order of appearance. Node i has the next Count[i] neighbors; Count of
    k types of edges is k times as long as X. The hash tables are room that another implementation needs.
    """
    del hash_value, hash_index
    nodes, place, _ = distinct(np.concatenate([data_of(x), data_of(neighbors)]))
    size, counts = np.asarray(data_of(x)).size, np.asarray(data_of(count))
    ends = np.repeat(np.arange(counts.size) % max(size, 1), counts)
    return LoDArray(place[size:].astype(nodes.dtype)), LoDArray(ends.astype(nodes.dtype)), LoDArray(nodes)
