"""similarity_focus: a greedy 0/1 mask over the planes of a tensor."""

import jax
import jax.numpy as jnp
from jax import lax

from lowering.registry import WISE, op


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


@op(diff=(), rows=WISE)
def similarity_focus(x, *, axis: int, indexes: list[int]):
    """Out = 1 where some slice X[:, index along axis] takes the position greedily, each row and column once; else 0."""
    planes = jnp.moveaxis(x, axis, 1)[:, jnp.asarray(indexes)]
    masks = jax.vmap(jax.vmap(_greedy_mask))(planes).max(axis=1)
    return jnp.broadcast_to(jnp.expand_dims(masks, axis), x.shape)
