"""Drawing one of the likeliest, as in Paddle 2."""

from __future__ import annotations

import jax.numpy as jnp

from lowering.draws import random_bits
from lowering.ops.shared import own_names, wide
from lowering.registry import op


@op(out="out ids", slots=own_names("x ps threshold"), lod=None, diff="")
def top_p_sampling(x, ps, threshold=None, *, key, seed: int = -1, random_seed: int = -1):
    """One of the likeliest of each row of probabilities x that together have ps[row]: out, ids [rows, 1].

    The first at which the sum, from the largest downward, reaches a uniform number times ps; where it is less likely
    than threshold[row], the last that is not; the likeliest if none is. A run draws with its key.
    """
    del seed, random_seed
    falling = jnp.argsort(-wide(x), axis=-1, stable=True)
    chances = jnp.take_along_axis(wide(x), falling, axis=-1)
    drawn = random_bits.uniform(key, (x.shape[0], 1), jnp.float32, 0.0, 1.0) * wide(ps).reshape(-1, 1)
    reached = jnp.cumsum(chances, axis=-1) >= drawn
    place = jnp.argmax(reached, axis=-1, keepdims=True)
    if threshold is not None:
        likely = (chances >= wide(threshold).reshape(-1, 1)).sum(axis=-1, keepdims=True)
        place = jnp.clip(place, 0, jnp.maximum(likely - 1, 0))
    ids = jnp.take_along_axis(falling, place, axis=-1)
    return jnp.take_along_axis(x, ids, axis=-1), ids.astype(jnp.int64)
