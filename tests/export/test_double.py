"""What two float32 results are judged by: the same function in float64, loops, branches and random numbers included."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import fluidjax as fluid
from fluidjax.export import ragged, to_jax
from fluidjax.export.c.build import compiler
from fluidjax.export.c.convert import Exact
from fluidjax.export.double import in_double
from fluidjax.export.files import Model


def looped(x, n):
    """Sums that float32 rounds, in each kind of loop and branch."""
    total, partial = lax.scan(lambda c, row: (c + row, c * 2), jnp.float32(1e8), x, reverse=True)
    grown = lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] + jnp.float32(1e-8)), (0, jnp.float32(1)))[1]
    chosen = lax.cond(n > 2, lambda v: v / 3, lambda v: v, total)
    return total, partial, grown, chosen, jax.jit(jnp.tanh)(x).astype(jnp.float32)


def test_loops_and_branches():
    x, n = np.arange(1, 6, dtype="float32") / 10, np.int32(5)
    total, partial, grown, chosen, smooth = in_double(looped, x, n)(x, n)
    wide = x.astype("float64")
    assert total.dtype == grown.dtype == smooth.dtype == np.float64
    assert float(total) == pytest.approx(1e8 + wide.sum(), abs=1e-7)
    assert float(partial[0]) == pytest.approx(2 * (1e8 + wide[1:].sum()), abs=1e-7)
    assert float(grown) == pytest.approx(1 + 5e-8, abs=1e-15)
    assert float(chosen) == pytest.approx((1e8 + wide.sum()) / 3, abs=1e-7)
    np.testing.assert_allclose(smooth, np.tanh(wide), rtol=1e-14)
    np.testing.assert_array_equal(in_double(looped, x, n)(wide, n)[4], smooth)


def test_random_numbers_are_the_same():
    def draw(key):
        return jax.random.uniform(jax.random.wrap_key_data(key, impl="threefry2x32"), (4,), np.float32)

    key = np.array([7, 3], np.uint32)
    np.testing.assert_array_equal(in_double(draw, key)(key), np.asarray(draw(key), "float64"))


def test_steps_of_a_program():
    words = fluid.data("words", [None, 1], "int64", lod_level=1)
    read = fluid.layers.sequence_pool(fluid.layers.dropout(fluid.embedding(words, [10, 4]), 0.5), "sum")
    hidden = fluid.layers.fc(fluid.layers.lod_reset(read, target_lod=[0, 1, 3]), 3)
    loss = fluid.layers.mean(fluid.layers.square(hidden))  # a sum without cancellation: judged by its own size
    fluid.optimizer.SGD(0.1).minimize(loss)
    fluid.Executor(fluid.CPUPlace()).run(fluid.default_startup_program())
    function, parameters = to_jax(fluid.default_main_program(), ["words"], [loss, hidden])
    with jax.enable_x64(True):
        given = {"words": ragged(np.arange(6).reshape(6, 1), [[2, 1, 3]])}
        exact = Exact(function, parameters, given, 5)
        held = parameters
        for step in range(2):
            outputs, held = function.step(held, given, np.array([5, step], np.uint32))
            assert exact.distance(step, loss.name, np.asarray(outputs[0])) < 1e-6
            assert exact.distance(step, hidden.name, np.asarray(outputs[1].data[:3])) < 1e-6
            assert exact.distance(step, "fc_0.w_0", np.asarray(held["fc_0.w_0"])) < 1e-6
    assert exact.distance(1, "fc_0.w_0", np.asarray(parameters["fc_0.w_0"])) > 1e-4


def test_both_sides_of_a_relu_are_right_where_float32_cannot_tell():
    """The input is a last digit below zero: a step as from above is as right, a step to nowhere is not."""
    x = fluid.data("x", [1, 2])
    hidden = fluid.layers.relu(fluid.layers.fc(x, 1, param_attr="w", bias_attr=False))
    fluid.optimizer.SGD(0.5).minimize(fluid.layers.mean(hidden))
    fluid.Executor(fluid.CPUPlace()).run(fluid.default_startup_program())
    function, parameters = to_jax(fluid.default_main_program(), ["x"], [])
    parameters = {**parameters, "w": np.array([[1], [1 + 2.0**-23]], "float32")}
    exact = Exact(function, parameters, {"x": np.array([[1, -1]], "float32")}, 5)
    below, above = np.asarray(parameters["w"]), np.array([[0.5], [1.5]], "float32")
    assert exact.distance(0, "w", below) == 0
    assert exact.distance(0, "w", above) > 0.3
    assert exact.distance(0, "w", below, 1e-6) == 0
    assert exact.distance(0, "w", above, 1e-6) < 1e-6
    assert exact.distance(0, "w", above[::-1], 1e-6) > 0.3
    assert exact.distance(1, "w", above, 1e-6) < 1e-6 < exact.distance(1, "w", (above + below) / 2, 1e-6)


@pytest.mark.skipif(compiler() is None, reason="no C compiler: install gcc, or name one in $CC")
def test_float64_judges_where_c_and_the_executor_differ(tmp_path):
    """A sum that float32 loses altogether: C adds up in double, XLA does not."""
    x = fluid.data("x", [None, 1])
    numbers = np.array([[1e9, 1, -1e9, 2, 1e9, 3, -1e9, 4]], "float32")
    start = fluid.initializer.NumpyArrayInitializer(numbers)
    large = fluid.layers.create_parameter([1, 8], "float32", default_initializer=start)
    ones = fluid.layers.scale(x, 0.0, bias=1.0)
    total = fluid.layers.reduce_sum(fluid.layers.elementwise_mul(large, ones, axis=0), dim=1)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    fluid.io.save_inference_model(str(tmp_path / "model"), ["x"], [total], exe)
    (got,) = exe.run(feed={"x": np.zeros((1, 1), "float32")}, fetch_list=[total])
    assert got.item() != 10
    Model(tmp_path / "model", None, None).write(str(tmp_path / "out"), "c")
    assert (tmp_path / "out" / "model").exists()
