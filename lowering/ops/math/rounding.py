"""Products rounded as kernels that run one by one round them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


def product(x, y):
    """x * y; where it is a single float32, rounded before anything is added to it.

    Schedules are single numbers, and are worth it: 1 - 5 * 0.2 is 0, not -1.5e-8, of which a root would be NaN.
    """
    plain = x * y
    return plain if plain.size != 1 else rounded_product(x, y)


def rounded_product(x, y):
    """x * y, rounded to float32 before anything is added to it, if it is one.

    XLA:CPU contracts a product and a sum into one operation that rounds once. What keeps the two apart is a rounding
    that no compiler sees through, of the exact product in float64.
    """
    plain = x * y
    if plain.dtype != np.float32 or not isinstance(plain, jax.core.Tracer):
        return plain
    exact = jnp.asarray(x, np.float64) * jnp.asarray(y, np.float64)
    return lax.reduce_precision(exact, 8, 23).astype(np.float32)
