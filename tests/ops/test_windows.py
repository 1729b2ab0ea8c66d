"""Sizes of what windows make: Fluid divides towards zero, and what does not fit is refused where the op is built."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fluidjax as fluid
from fluidjax import layers
from lowering.errors import OpError, SizeError
from lowering.ops.nn import windows

SIZE, K, STRIDE = 6, 7, 7  # GoogLeNet's last pool at 224: (6 - 7) / 7 + 1 is 1 in C++


@given(
    size=st.integers(1, 12), k=st.integers(1, 9), stride=st.integers(1, 8), low=st.integers(0, 3),
    high=st.integers(0, 3), dilation=st.integers(1, 3),
)  # fmt: skip
def test_windows_are_counted_with_a_division_towards_zero(size, k, stride, low, high, dilation):
    exact = (size + low + high - (dilation * (k - 1) + 1)) / stride
    wanted = math.trunc(exact) + 1
    axis = (size, k, stride, (low, high), dilation)
    if wanted < 1:
        with pytest.raises(SizeError, match=f"{size} rows are too few"):
            windows.count(*axis)
        return
    assert windows.count(*axis) == wanted
    start, end = windows.reached(*axis)
    assert start == low and end >= high
    # with these paddings the last window fits, and no other would
    assert (size + start + end - windows.extent(k, dilation)) // stride + 1 == wanted


def run(build, x):
    """The result of one layer on ``x``, and the gradient of its sum."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        data = fluid.data("x", [None, *x.shape[1:]])
        data.stop_gradient = False
        out = build(data)
        (grad,) = fluid.gradients([layers.reduce_sum(out)], [data])
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        got, d_x = map(np.array, exe.run(main, feed={"x": x}, fetch_list=[out, grad], return_numpy=False))
    assert tuple(out.shape)[1:] == got.shape[1:], "declared as it is"
    return got, d_x


@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("kind", ["max", "avg", "avg of all"])
def test_a_pool_larger_than_its_input(rng, rank, kind):
    x = rng.normal(size=(2, 3) + (SIZE,) * rank).astype("float32")
    pool = getattr(layers, f"pool{rank}d")
    got, d_x = run(lambda v: pool(v, K, kind[:3], STRIDE, exclusive=kind != "avg of all"), x)
    axes = tuple(range(2, 2 + rank))
    share = {"max": x == x.max(axes, keepdims=True), "avg": SIZE**-rank, "avg of all": K**-rank}[kind]
    np.testing.assert_allclose(got, (x * share).sum(axes, keepdims=True), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(d_x, np.broadcast_to(share, x.shape), rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "groups", "rank"),
    [("conv2d", 1, 2), ("conv2d", 3, 2), ("conv3d", 1, 3)],
    ids=["conv2d", "depthwise", "3d"],
)
def test_a_kernel_larger_than_its_input(rng, name, groups, rank):
    """Only its first rows meet the input."""
    x = rng.normal(size=(2, 3) + (SIZE,) * rank).astype("float32")
    kernel = rng.normal(size=(3, 3 // groups) + (K,) * rank).astype("float32")
    attr = fluid.ParamAttr(initializer=fluid.initializer.NumpyArrayInitializer(kernel))
    conv = getattr(layers, name)
    got, d_x = run(lambda v: conv(v, 3, K, STRIDE, groups=groups, param_attr=attr, bias_attr=False), x)
    seen = kernel[(..., *(slice(0, SIZE),) * rank)]
    grouped = x.reshape(2, groups, 3 // groups, -1)
    wanted = np.einsum("ngcp,gocp->ngo", grouped, seen.reshape(groups, 3 // groups, 3 // groups, -1))
    np.testing.assert_allclose(got.reshape(2, 3), wanted.reshape(2, 3), rtol=1e-4, atol=1e-4)
    parts = seen.reshape(groups, 3 // groups, 3 // groups, *(SIZE,) * rank).sum(1).reshape(1, *x.shape[1:])
    np.testing.assert_allclose(d_x, np.broadcast_to(parts, x.shape), rtol=1e-4, atol=1e-5)


def test_patches_larger_than_the_image(rng):
    x = rng.normal(size=(2, 3, SIZE, SIZE)).astype("float32")
    padded = np.pad(x, ((0, 0), (0, 0), (0, 1), (0, 1))).reshape(2, -1)
    got, d_x = run(lambda v: layers.unfold(v, [K, K], STRIDE), x)
    np.testing.assert_array_equal(got[..., 0], padded)
    assert (d_x == 1).all()
    np.testing.assert_array_equal(run(lambda v: layers.im2sequence(v, K, STRIDE), x)[0], padded)


TOO_LARGE = {
    "pool2d": lambda x: layers.pool2d(x, 7, "max", 3),
    "ceil": lambda x: layers.pool2d(x, 9, "max", 3, ceil_mode=True),
    "conv2d": lambda x: layers.conv2d(x, 2, 7, 3),
    "depthwise": lambda x: layers.conv2d(x, 3, 7, 3, groups=3),
    "conv2d_transpose": lambda x: layers.conv2d_transpose(x, 2, filter_size=3, padding=4),
    "unfold": lambda x: layers.unfold(x, [7, 7], 3),
    "im2sequence": lambda x: layers.im2sequence(x, 7, 3),
}


@pytest.mark.parametrize("batch", [None, 2])
@pytest.mark.parametrize("name", TOO_LARGE)
def test_what_does_not_fit_is_refused_where_it_is_built(name, batch):
    """With an unknown batch size too: it is no reason to put the error off."""
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [batch, 3, 3, 3])
        with pytest.raises(OpError, match=r"3 rows are too few for .*(windows|transposed)"):
            TOO_LARGE[name](x)


def test_an_unknown_size_is_no_error():
    """A kernel larger than the sizes that stand for an unknown one."""
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 3, 1, None])
        assert layers.pool2d(x, [1, 20000], "max", 1).shape[:2] in ((-1, 3), ())
