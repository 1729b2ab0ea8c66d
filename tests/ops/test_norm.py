"""Spectral norm's gradient, which Paddle has only for equal output gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lowering


@pytest.fixture(autouse=True)
def wide():
    with jax.enable_x64(True):
        yield


def test_spectral_norm_gradient(rng):
    """With u and v held at their iterated values, as both frameworks mean it."""
    w, u, v, d_out = (rng.standard_normal(s) for s in ((3, 4), 3, 4, (3, 4)))
    op = lowering.get_op("spectral_norm")
    with jax.enable_x64(True):
        for _ in range(2):
            v = w.T @ u / np.linalg.norm(w.T @ u)
            u = w @ v / np.linalg.norm(w @ v)
        grad = op.gradient.fn(w, u, v, jnp.asarray(d_out), dim=0, power_iters=0, eps=1e-12)
        _, pull = jax.vjp(lambda m: m / (u @ m @ v), w)
    np.testing.assert_allclose(grad, pull(jnp.asarray(d_out))[0], atol=1e-12)


def test_lrn_wants_an_odd_window():
    with pytest.raises(ValueError, match="odd n"):
        lowering.get_op("lrn")(jnp.ones((1, 4, 2, 2)), n=4)
