"""filter_by_instag: keeps the instances that have given tags."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from lowering.ops.sequence import shapes
from lowering.ragged.rows import offsets, row_numbers, take
from lowering.registry import Long, op
from lowering.values import LoDArray, concrete


@op(
    out="Out LossWeight IndexMap",
    slots={"ins_tag": "Ins_tag", "filter_tag": "Filter_tag"},
    diff="ins",
    lod=None,
    infer=shapes.filter_by_instag,
)
def filter_by_instag(ins: LoDArray, ins_tag: LoDArray, filter_tag, *, is_lod: bool, out_val_if_empty: Long = 0):
    """The instances (sequences of Ins, or rows if not ``is_lod``) that have a tag in Filter_tag.

    IndexMap [kept, 3] holds their first row in Out, in Ins, and their number of rows; LossWeight is 1. If nothing is
    kept, Out is one row of ``out_val_if_empty`` with LossWeight 0.
    """
    tags = concrete(ins_tag.data, "the tags of filter_by_instag").reshape(-1)
    tag_off = concrete(offsets(ins_tag, 0), "the LoD of Ins_tag")
    wanted = concrete(filter_tag, "Filter_tag").reshape(-1)
    count = len(tag_off) - 1
    off = concrete(offsets(ins, 0), "the LoD of Ins") if is_lod else np.arange(count + 1)
    kept = [i for i in range(count) if np.isin(tags[tag_off[i] : tag_off[i + 1]], wanted).any()]
    if not kept:
        out = jnp.full((1, *ins.shape[1:]), out_val_if_empty, ins.dtype)
        one = np.asarray([0, 1], np.int32)
        weight = jnp.zeros((1, 1), jnp.float32)
        return LoDArray(out, (one,)), LoDArray(weight, (one,)), LoDArray(np.asarray([[0, 1, 1]]), (one,))
    sizes = np.asarray([off[i + 1] - off[i] for i in kept])
    out_off = np.concatenate([[0], np.cumsum(sizes)])
    rows = np.concatenate([np.arange(off[i], off[i + 1]) for i in kept]).astype(np.int32)
    index = np.stack([out_off[:-1], np.asarray([off[i] for i in kept]), sizes], axis=1).astype(np.int64)
    units = row_numbers(len(kept) + 1)
    return (
        LoDArray(take(ins.data, rows), (out_off.astype(np.int32),)),
        LoDArray(jnp.ones((len(kept), 1), jnp.float32), (units,)),
        LoDArray(index, (units,)),
    )


@filter_by_instag.grad
def _(ins: LoDArray, loss_weight, index_map, d_out):
    starts, sources, sizes = (index_map[:, i].astype(jnp.int32) for i in range(3))
    rows = row_numbers(d_out.shape[0])[:, None]
    inside = (rows >= starts[None, :]) & (rows < (starts + sizes)[None, :])
    target = jnp.sum(jnp.where(inside, rows - starts[None, :] + sources[None, :], 0), axis=1)
    kept = (loss_weight.reshape(-1)[0] != 0) & jnp.any(inside, axis=1)
    target = jnp.where(kept, target, ins.capacity)
    return ins.with_data(jnp.zeros(ins.shape, d_out.dtype).at[target].add(d_out, mode="drop"))
