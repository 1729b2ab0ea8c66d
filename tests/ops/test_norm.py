"""Norms: gradients that Paddle lacks, windows, and sums that outlive a step's parts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fluidjax as fluid
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


def test_statistics_of_the_data_outlive_a_host_op():
    """data_norm_grad lists the three sums as outputs and leaves them alone; the optimizer behind it reads them."""
    layers, startup = fluid.layers, fluid.Program()
    with fluid.program_guard(fluid.Program(), startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        x = fluid.data("x", [None, 3], "float32", lod_level=1)
        padded, lengths = layers.sequence_pad(layers.data_norm(x), layers.fill_constant([1], "float32", 0.0))
        mask = layers.sequence_mask(lengths, dtype="float32")  # its width is a value: computed on the host
        loss = layers.mean(padded * layers.reshape(mask, [0, -1, 1]))
        fluid.optimizer.SGD(0.1).minimize(loss)
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        rows = fluid.create_lod_tensor(np.ones((5, 3), np.float32), [[2, 3]], fluid.CPUPlace())
        exe.run(feed={"x": rows}, fetch_list=[loss])
        size = np.array(fluid.global_scope().find_var("dn.batch_size").get_tensor())
    np.testing.assert_allclose(size, np.full(3, 1e4 - 0.1 * 5), rtol=1e-6)


@pytest.mark.parametrize("running", [False, True])
def test_half_precision_is_normalised_in_the_precision_of_its_statistics(rng, running):
    """The sum of a channel, 131072 * 2, is beyond float16."""
    x = (rng.standard_normal((8, 1, 128, 128)) + 2).astype(np.float16)
    stats = [np.ones(1, np.float32), np.zeros(1, np.float32), np.full(1, 2, np.float32), np.ones(1, np.float32)]
    rows = lowering.LoDArray(jnp.asarray(x))
    y, _, _, mean, inv_std, _ = lowering.get_op("batch_norm")(rows, *stats, use_global_stats=running)
    assert y.dtype == np.float16
    if not running:
        np.testing.assert_allclose(mean, x.astype(np.float64).mean((0, 2, 3)), rtol=1e-6)
        mean, inv_std = np.array(mean), np.array(inv_std)
    else:
        mean, inv_std = stats[2], stats[3]
    np.testing.assert_allclose(y, (x - mean) * inv_std, rtol=2e-3, atol=2e-3)
    d_y = rng.standard_normal(x.shape).astype(np.float16)
    d_x, d_scale, d_bias = lowering.get_op("batch_norm_grad")(
        rows, *stats[:2], mean, inv_std, d_y, *stats[2:], epsilon=1e-5, data_layout="NCHW", use_global_stats=running
    )
    assert d_x.dtype == np.float16 and d_scale.dtype == d_bias.dtype == np.float32
    np.testing.assert_allclose(d_bias, d_y.astype(np.float64).sum((0, 2, 3)), rtol=1e-4, atol=1e-2)
