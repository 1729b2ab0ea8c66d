"""Message passing along the edges of a graph, and pooling of rows by segment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lowering.ops.shared import concrete, concrete_scalar
from lowering.registry import Longs, op

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
