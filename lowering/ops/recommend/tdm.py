"""Tree-based deep match: children of tree nodes, and negative samples per layer of the tree."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from lowering.draws import random_bits
from lowering.dtypes import to_numpy
from lowering.engine.checks import Demand
from lowering.ops.shared import outputs_like
from lowering.program import VarInfo
from lowering.registry import Wise, op
from lowering.values import Meta

_CHILDREN = 3  # columns of TreeInfo: item id (0: inner node), layer, parent, then the children


def _infer_child(op, var_of):
    x = var_of(op.inputs["X"][0])
    dims = (*x.shape, int(op.attrs["child_nums"]))
    info = VarInfo(dims, int(op.attrs.get("dtype", 2)), x.lod_level)
    return outputs_like(op, "Child", info) | outputs_like(op, "LeafMask", info)


@op(out="Child LeafMask", lod={"Child": "x", "LeafMask": "x"}, diff="", rows=Wise("x"), infer=_infer_child)
def tdm_child(x, tree_info, *, child_nums: int, dtype: int = 2):
    """Child [.., child_nums] = the children of node X, zeros for a leaf or node 0; LeafMask = 1 for items among them.

    TreeInfo [nodes, 3 + child_nums]: item id, layer, parent, children.
    """
    kind = to_numpy(dtype)
    tree_info = jnp.asarray(tree_info)
    children = tree_info[x, _CHILDREN : _CHILDREN + child_nums]
    inner = (x != 0) & (children[..., 0] != 0)
    children = jnp.where(inner[..., None], children, 0)
    leaf = inner[..., None] & (tree_info[children, 0] != 0)
    return children.astype(kind), leaf.astype(kind)


@tdm_child.check
def _(x, tree_info: Meta):
    return [Demand("x", x, 0, tree_info.shape[0])]


def _infer_sampler(op, var_of):
    x = var_of(op.inputs["X"][0])
    width = sum(n + bool(op.attrs.get("output_positive", True)) for n in op.attrs.get("neg_samples_num_list") or [])
    info = VarInfo((x.shape[0], width), int(op.attrs.get("dtype", 2)), x.lod_level)
    return {name: info for slot in ("Out", "Labels", "Mask") for name in outputs_like(op, slot, info)}


def _negatives(key, positive, nodes, count: int):
    """[N, count] nodes of one layer, distinct and unequal to the positive one."""
    draws = random_bits.uniform(key, (positive.shape[0], nodes.shape[0]), np.float32)
    draws = jnp.where(nodes[None, :] == positive[:, None], 2.0, draws)
    return nodes[jnp.argsort(draws, axis=1)[:, :count]]


@op(out="Out Labels? Mask", lod=None, diff="", rows=None, infer=_infer_sampler)
def tdm_sampler(
    x,
    travel,
    layer,
    *,
    key,
    output_positive: bool = True,
    neg_samples_num_list: list[int] = (),
    layer_offset_lod: list[int] = (),
    seed: int = 0,
    dtype: int = 2,
):
    """For each item X and each layer of the tree: the node on its path (label 1), then sampled other nodes (label 0).

    Travel [items, layers] holds the paths (0: ended, giving zeros with mask 0); Layer [nodes, 1] the nodes of all
    layers, split by ``layer_offset_lod``.
    """
    del seed
    paths = jnp.asarray(travel)[x.reshape(-1)]
    out, labels, mask = [], [], []
    spans = zip(neg_samples_num_list, layer_offset_lod[:-1], layer_offset_lod[1:], strict=True)
    for depth, (count, first, last) in enumerate(spans):
        positive = paths[:, depth]
        real = (positive != 0)[:, None]
        nodes = layer.reshape(-1)[first:last]
        chosen = _negatives(jax.random.fold_in(key, depth), positive, nodes, count)
        label = jnp.zeros_like(chosen)
        if output_positive:
            chosen = jnp.concatenate([positive[:, None], chosen], axis=1)
            label = jnp.concatenate([jnp.ones_like(positive)[:, None], label], axis=1)
        out.append(jnp.where(real, chosen, 0))
        labels.append(jnp.where(real, label, 0))
        mask.append(jnp.broadcast_to(real, chosen.shape))
    kind = to_numpy(dtype)
    return tuple(jnp.concatenate(part, axis=1).astype(kind) for part in (out, labels, mask))


@tdm_sampler.check
def _(x, travel: Meta):
    return [Demand("x", x, 0, travel.shape[0])]
