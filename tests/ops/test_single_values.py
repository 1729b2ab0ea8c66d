"""batch_norm of channels that have one value alone: Fluid skips them in training, as values without a variance."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import fluidjax as fluid
import lowering
from fluidjax import layers
from lowering.values import LoDArray

SHAPES = {"NCHW": [1, 3, 1, 1], "NHWC": [1, 1, 1, 3], "rows": [1, 3]}
X = np.array([-1.0, 0.5, 2.0], "float32")


def value(v):
    return fluid.ParamAttr(initializer=fluid.initializer.Constant(v))


def step(x, build):
    """(Y, X@GRAD of sum(Y^2), parameters and statistics after an SGD step by name)."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        data = fluid.data("x", list(x.shape))
        data.stop_gradient = False
        y = build(layers.scale(data, 1.0))
        loss = layers.reduce_sum(y * y)
        fluid.optimizer.SGD(0.1).minimize(loss)
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        fetched = exe.run(main, feed={"x": x}, fetch_list=[y * 1.0, "x@GRAD"], return_numpy=False)
        scope = fluid.global_scope()
        state = {v.name: np.array(scope.find_var(v.name).get_tensor()) for v in main.list_vars() if v.persistable}
    return *map(np.array, fetched), {k: v for k, v in state.items() if k.startswith(("batch_norm", "inplace_abn"))}


def check_untouched(state):
    """scale = 2, bias = 0.5, mean = 0 and variance = 1, as they began."""
    assert sorted(float(v[0]) for v in state.values()) == [0.0, 0.5, 1.0, 2.0]
    assert all((v == v[0]).all() for v in state.values())


@pytest.mark.parametrize("layout", SHAPES)
def test_training_copies(layout):
    data_layout = "NHWC" if layout == "NHWC" else "NCHW"
    y, d_x, state = step(
        X.reshape(SHAPES[layout]),
        lambda x: layers.batch_norm(x, param_attr=value(2.0), bias_attr=value(0.5), data_layout=data_layout),
    )
    np.testing.assert_array_equal(y.ravel(), X)
    np.testing.assert_array_equal(d_x.ravel(), 2 * X)
    check_untouched(state)


@pytest.mark.parametrize("count", [1, 2])
def test_one_row_among_padding_copies(count):
    """How many rows there are is known only in the step; padding is no further value, a second row is."""
    rows = LoDArray(jnp.asarray(np.stack([X, X + count - 1, X, X])), (), jnp.int32(count))
    ones, zeros = jnp.ones(3, jnp.float32), jnp.zeros(3, jnp.float32)
    definition = lowering.get_op("batch_norm")
    y, mean, variance, *saved, _ = definition(rows, ones, ones, zeros, ones)
    d_y = LoDArray(jnp.asarray(np.stack([X, X, 0 * X, 0 * X])), (), jnp.int32(count))
    d_x, d_scale, _ = definition.gradient(
        rows, ones, ones, *saved, d_y.data, epsilon=1e-5, data_layout="NCHW", use_global_stats=False
    )
    copied = count == 1
    assert np.array_equal(y.data[0], X) == copied
    assert np.array_equal(d_x.data[0], X) == copied
    assert (not d_scale.any() and not mean.any() and (variance == 1).all()) == copied


@pytest.mark.parametrize(("act", "wanted"), [("identity", [-2, 1, 4]), ("leaky_relu", [-0.08, 1, 4])])
def test_inplace_abn_applies_its_activation_alone(act, wanted):
    """As Paddle 1.8.5: the gradient passes the activation, and nothing else."""
    _, d_x, state = step(
        X.reshape(1, 3, 1, 1),
        lambda x: layers.inplace_abn(x, act=act, act_alpha=0.2, param_attr=value(2.0), bias_attr=value(0.5)),
    )
    np.testing.assert_allclose(d_x.ravel(), wanted, rtol=1e-6)
    check_untouched(state)


def test_running_statistics_are_used_as_ever():
    y, _, _ = step(
        X.reshape(1, 3, 1, 1),
        lambda x: layers.batch_norm(x, param_attr=value(2.0), bias_attr=value(0.5), use_global_stats=True),
    )
    np.testing.assert_allclose(y.ravel(), 2 * X + 0.5, rtol=1e-4)
