"""Pooling: windows against NumPy, ties, adaptive maxima, and a deviation from Paddle."""

import inspect
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import lowering
from lowering.ops.nn import pool_kernels as kernels
from lowering.ops.nn.pool import avg_pool_grad, max_pool_grad
from lowering.ops.nn.pool_kernels import AdaptiveAxis, Axis


@pytest.fixture(autouse=True)
def wide():
    with jax.enable_x64(True):
        yield


FLUID = SimpleNamespace(release=0)  # what an op is told of its program


def run(op_type, x, **attrs):
    given = {"ctx": FLUID} if op_type == "pool2d" else {}
    with jax.enable_x64(True):
        return lowering.get_op(op_type)(x, **attrs, **given)


def test_ties_go_to_the_first():
    x = np.zeros((1, 1, 4, 4))
    op = lowering.get_op("pool2d").gradient
    attrs = {"pooling_type": "max", "ksize": [3, 3], "strides": [1, 1], "paddings": [0, 0], "exclusive": True}
    attrs |= {"global_pooling": False, "adaptive": False, "ceil_mode": False, "data_format": "NCHW"}
    grad = op.fn(x, np.zeros((1, 1, 2, 2)), np.ones((1, 1, 2, 2)), padding_algorithm="EXPLICIT", ctx=FLUID, **attrs)
    expected = np.zeros((4, 4))
    expected[:2, :2] = 1
    np.testing.assert_array_equal(grad[0, 0], expected)


def test_adaptive_maxima(rng):
    """Paddle's pool2d takes plain windows here; its max_pool2d_with_index, used by the layer, takes adaptive ones."""
    x = rng.standard_normal((2, 3, 7, 5))
    pooled = run("pool2d", x, pooling_type="max", ksize=[3, 2], adaptive=True)
    indexed, mask = run("max_pool2d_with_index", x, ksize=[3, 2], adaptive=True)
    np.testing.assert_array_equal(pooled, indexed)
    np.testing.assert_array_equal(np.take_along_axis(x.reshape(2, 3, -1), np.asarray(mask).reshape(2, 3, -1), 2),
                                  np.asarray(indexed).reshape(2, 3, -1))  # fmt: skip


WIDE = {
    AdaptiveAxis(37, 2): [(0, 19), (18, 37)],
    Axis(37, 3, 20, 10, 2): [(0, 18), (8, 28), (18, 37)],
    Axis(40, 2, 20, 20, 0): [(0, 20), (20, 40)],
}


@pytest.mark.parametrize("axis", WIDE, ids=str)
def test_maxima_of_windows_too_wide_to_unroll(rng, axis):
    """And where the first of them stands."""
    x = rng.integers(0, 5, (3, axis.size)).astype(np.float64)
    first = np.stack([a + np.argmax(x[:, a:b], 1) for a, b in WIDE[axis]], 1)
    with jax.enable_x64(True):
        x, rows = jax.numpy.asarray(x), jax.numpy.arange(axis.size) + jax.numpy.zeros(x.shape, int)
        best, at = kernels.argmax_axis(x, rows, 1, axis)
        np.testing.assert_array_equal(at, first)
        np.testing.assert_array_equal(best, np.take_along_axis(np.asarray(x), first, 1))
        np.testing.assert_array_equal(kernels.max_axis(x, 1, axis), best)


@pytest.mark.parametrize("axis", [Axis(8, 4, 2, 2, 0), Axis(9, 5, 3, 2, 1), AdaptiveAxis(7, 3)], ids=str)
def test_a_cpu_finds_each_windows_maximum_once(rng, axis, monkeypatch):
    x = rng.integers(-4, 4, (2, 3, axis.size, axis.size)).astype(np.float32)  # with ties
    out = kernels.max_axis(kernels.max_axis(x, 3, axis), 2, axis)
    d_out = rng.standard_normal(out.shape).astype(np.float32)
    gradient = jax.jit(lambda *given: max_pool_grad(*given, [axis, axis]))
    traced = gradient.trace(x, out, d_out)
    here, elsewhere = (traced.lower(lowering_platforms=(platform,)).as_text() for platform in ("cpu", "cuda"))
    assert here.count("compare GT") == (2 if getattr(axis, "tiled", False) else 4)  # the branch that is never taken
    assert not elsewhere.count("compare GT")
    found = np.asarray(gradient(x, out, d_out))
    monkeypatch.setattr(kernels, "once_on_cpu", lambda value: value)
    again = jax.jit(lambda *given: max_pool_grad(*given, [axis, axis]))(x, out, d_out)
    np.testing.assert_array_equal(found, again)
    assert np.abs(found).max() > 0.1


@pytest.mark.parametrize("axis", [Axis(7, 3, 3, 2, 1), Axis(6, 3, 2, 2, 0), Axis(20, 2, 18, 2, 0), AdaptiveAxis(7, 3)])
def test_sums_and_their_adjoint(rng, axis):
    x, dy = rng.standard_normal((2, axis.size)), rng.standard_normal((2, axis.out))
    with jax.enable_x64(True):
        y, pull = jax.vjp(lambda v: kernels.sum_axis(v, 1, axis), x)
        np.testing.assert_allclose(kernels.sum_axis_grad(jax.numpy.asarray(dy), 1, axis), pull(dy)[0], atol=1e-12)
    counts = kernels.sum_axis(np.ones((1, axis.size)), 1, axis)
    np.testing.assert_allclose(counts[0], axis.counts(), rtol=1e-6)


@pytest.mark.parametrize("op_type", ["pool2d", "max_pool2d_with_index"])
def test_a_window_of_nothing_but_padding_is_the_lowest_float(rng, op_type):
    """-FLT_MAX, also in float64, and no position: its gradient goes nowhere."""
    x = rng.standard_normal((1, 1, 4, 3))
    kind = {"pooling_type": "max"} if op_type == "pool2d" else {}
    attrs = {"ksize": [1, 1], "strides": [3, 2], "paddings": [1, 1], **kind}
    found = run(op_type, x, **attrs)
    out = found if op_type == "pool2d" else found[0]
    want = np.full((2, 3), -float(np.finfo(np.float32).max))
    want[1, 1] = x[0, 0, 2, 1]
    np.testing.assert_array_equal(out[0, 0], want)
    if op_type == "max_pool2d_with_index":
        assert np.asarray(found[1])[0, 0].tolist() == [[-1, -1, -1], [-1, 7, -1]]
    gradient = lowering.get_op(op_type).gradient
    d_out = np.full((1, 1, 2, 3), 5.0)
    if op_type == "pool2d":
        every = lowering.check_attrs(op_type, attrs)
        read = {n: every[n] for n in inspect.signature(gradient.fn).parameters if n in every}
        d_x = gradient.fn(x, out, d_out, ctx=FLUID, **read)
    else:
        d_x = gradient.fn(x, found[1], d_out)
    expected = np.zeros((4, 3))
    expected[2, 1] = 5.0
    np.testing.assert_array_equal(d_x[0, 0], expected)


@pytest.mark.parametrize("size", [128, 257])
def test_means_of_half_precision_are_of_sums_beyond_it(size):
    x = np.full((1, 1, size, size), 8, np.float16)
    attrs = {"pooling_type": "avg", "ksize": [size, size]}
    out = run("pool2d", x, **attrs)
    assert out.dtype == np.float16 and out.item() == 8
    axes = [Axis(size, 1, size, 1, 0)] * 2
    d_x = avg_pool_grad(jax.numpy.full((1, 1, 1, 1), 4096, np.float16), axes, True)
    assert d_x.dtype == np.float16
    np.testing.assert_allclose(d_x, 4096 / size**2, rtol=1e-3)
