"""tree_conv (convolution over the nodes of a tree) and similarity_focus (a greedy mask)."""

import jax
import jax.numpy as jnp
from jax import lax

from lowering.registry import op


def _parents(edges, nodes):
    """(parent, place among siblings from 1, number of siblings, node exists) of nodes 0 ... nodes, 0 being none.

    Edges (parent, child) [M, 2] end at the first that holds a 0; nodes are counted over all edges without a 0.
    """
    u, v = edges[:, 0], edges[:, 1]
    real = (u != 0) & (v != 0)
    valid = jnp.cumprod(real.astype(jnp.int32)).astype(bool)
    u, v = jnp.where(valid, u, 0), jnp.where(valid, v, 0)
    same = (u[:, None] == u[None]) & valid[:, None] & valid[None]
    order = jnp.arange(len(edges))
    place = (same & (order[None] <= order[:, None])).sum(axis=1)
    zeros = jnp.zeros(nodes + 1, jnp.int32)
    put = lambda values: zeros.at[v].set(jnp.where(valid, values, 0).astype(jnp.int32), mode="drop")  # noqa: E731
    exists = jnp.arange(nodes + 1) <= real.sum() + 1
    return put(u).at[0].set(0), put(place), put(same.sum(axis=1)), exists


def _patch_weights(edges, nodes, max_depth, dtype):
    """Weights [3 (left, right, top), root, node] of each node within depth max_depth under each root."""
    parent, place, siblings, exists = _parents(edges, nodes)
    share = jnp.where(siblings == 1, 0.5, (place - 1) / jnp.maximum(siblings - 1, 1)).astype(dtype)
    ancestor, total = jnp.arange(nodes + 1), jnp.zeros((3, nodes + 1, nodes + 1), dtype)
    for depth in range(max_depth):
        under = (ancestor[None] == jnp.arange(nodes + 1)[:, None]) & (ancestor > 0)[None] & exists[:, None]
        top = (max_depth - depth) / max_depth
        left = (1 - top) * share
        weights = jnp.stack([left, (1 - top) * (1 - left), jnp.full_like(left, top)])
        total = total + jnp.where(under[None], weights[:, None, :], 0)
        ancestor = parent[ancestor]
    return total[:, 1:, 1:]


@op(lod=None, diff="nodes_vector filter", grad="vjp", reads="nodes_vector edge_set filter")
def tree_conv(nodes_vector, edge_set, filter, *, max_depth: int = 2):
    """Out[b, u, o, f] = sum over nodes v within depth max_depth under u of NodesVector[b, v] (eta_l W_l + eta_r W_r +
    eta_t W_t): eta_t = 1 - depth / max_depth, eta_l = (1 - eta_t) (place - 1) / (siblings - 1) (0.5 for an only child),
    eta_r = (1 - eta_t) (1 - eta_l). Filter is [features, 3, out, filters]; EdgeSet [b, M, 2] counts nodes from 1.
    """
    nodes = nodes_vector.shape[1]

    def one(vectors, edges):
        weights = _patch_weights(edges, nodes, max_depth, vectors.dtype)
        patches = jnp.einsum("kuv,vd->udk", weights, vectors)
        return jnp.einsum("udk,dkof->uof", patches, filter)

    return jax.vmap(one)(nodes_vector, edge_set)


def _greedy_mask(plane):
    """1 at elements taken by falling value, each barring its row and its column."""
    rows, cols = plane.shape
    lowest = jnp.array(-jnp.inf, plane.dtype)

    def take(_, state):
        rest, mask = state
        at = jnp.argmax(rest)
        r, c = at // cols, at % cols
        return rest.at[r].set(lowest).at[:, c].set(lowest), mask.at[r, c].set(1)

    return lax.fori_loop(0, min(rows, cols), take, (plane, jnp.zeros_like(plane)))[1]


@op(diff=(), rows="wise")
def similarity_focus(x, *, axis: int, indexes: list[int]):
    """Out = 1 where some slice X[:, index along axis] picks the place greedily, row and column once each; else 0."""
    planes = jnp.moveaxis(x, axis, 1)[:, jnp.asarray(indexes)]
    masks = jax.vmap(jax.vmap(_greedy_mask))(planes).max(axis=1)
    return jnp.broadcast_to(jnp.expand_dims(masks, axis), x.shape)
