"""Products of single numbers, rounded as kernels that run one by one round them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


def product(x, y):
    """x * y; where it is a single float32, rounded before anything is added to it.

    XLA:CPU contracts a product and a sum into one operation that rounds once: 1 - 5 * 0.2 is then -1.5e-8, and a
    schedule that takes a root of it NaN. What keeps the two apart is a rounding that no compiler sees through, of the
    exact product in float64. Only single numbers, which schedules are, are worth it.
    """
    plain = x * y
    if plain.size != 1 or plain.dtype != np.float32 or not isinstance(plain, jax.core.Tracer):
        return plain
    exact = jnp.asarray(x, np.float64) * jnp.asarray(y, np.float64)
    return lax.reduce_precision(exact, 8, 23).astype(np.float32)
