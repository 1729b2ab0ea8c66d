"""tree_conv: convolution over the nodes of trees (TBCNN)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from lowering.registry import op
from lowering.values import Array


def _patches(edges: Array, nodes: int, max_depth: int, dtype: np.dtype) -> Array:
    """[nodes, nodes, 3]: how much node v counts in the patch of node u, as left, right and top.

    Edges (parent, child) [e, 2] count from 1 and end at the first with a zero; a patch holds the nodes less than
    ``max_depth`` below its root.
    """
    valid = jnp.cumprod(jnp.all(edges != 0, axis=1).astype(jnp.int32)) > 0
    parent, child = (jnp.where(valid, edges[:, i] - 1, nodes) for i in range(2))
    links = jnp.zeros((nodes, nodes), dtype).at[parent, child].set(1, mode="drop")
    same = (parent[:, None] == parent[None, :]) & valid[:, None] & valid[None, :]
    place = jnp.arange(edges.shape[0])
    earlier = place[:, None] > place
    siblings, order = same.sum(axis=1), (same & earlier).sum(axis=1)
    share = jnp.where(siblings == 1, 0.5, order / jnp.maximum(siblings - 1, 1)).astype(dtype)
    left = jnp.zeros(nodes, dtype).at[child].set(share, mode="drop")
    exists = (jnp.arange(nodes) < valid.sum() + 1).astype(dtype)
    reach, total = jnp.diag(exists), 0
    for depth in range(max_depth):
        top = (max_depth - depth) / max_depth
        below = (1 - top) * (left if depth else jnp.full(nodes, 0.5, dtype))
        weights = jnp.stack([below, (1 - top) * (1 - below), jnp.full(nodes, top, dtype)], axis=1)
        total = total + reach[:, :, None] * weights[None]
        reach = jnp.dot(reach, links)
    return total


@op(grad="vjp", diff="nodes_vector filter", lod=None, reads="nodes_vector edge_set filter")
def tree_conv(nodes_vector, edge_set, filter, *, max_depth: int = 2):
    """Out[b, u] = sum over the patch of u of (left W_l + right W_r + top W_t) x_v; Filter [width, 3, out, filters].

    A node at depth d below u has weight 1 - d / max_depth as top; the rest is divided between left and right according
    to its position among its siblings. NodesVector [b, nodes, width], EdgeSet [b, edges, 2], whole numbers of any type:
    Fluid's layer takes any, too.
    """

    def one(nodes: Array, edges: Array) -> Array:
        weights = _patches(edges, nodes.shape[0], max_depth, nodes.dtype)
        patch = jnp.einsum("uvk,vf->ufk", weights, nodes)
        return jnp.einsum("ufk,fkon->uon", patch, filter)

    return jax.vmap(one)(nodes_vector, edge_set.astype(np.int32))
