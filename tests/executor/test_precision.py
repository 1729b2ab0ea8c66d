"""Float32 products are computed in float32 on every platform: accelerators would round their operands."""

import jax
import jax.extend.core
import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.export import to_jax


def network():
    image = fluid.data("image", [None, 2, 6, 6])
    hidden = fluid.layers.fc(fluid.layers.conv2d(image, 3, 3), 8)
    words = fluid.layers.transpose(fluid.layers.reshape(hidden, [-1, 2, 4]), [1, 0, 2])
    rnn = fluid.layers.StaticRNN()
    with rnn.step():
        word = rnn.step_input(words)
        memory = rnn.memory(shape=[-1, 4], batch_ref=word, ref_batch_dim_idx=0)
        after = fluid.layers.fc([word, memory], 4, act="tanh")
        rnn.update_memory(memory, after)
        rnn.step_output(after)
    loss = fluid.layers.reduce_mean(rnn())
    fluid.optimizer.SGD(0.1).minimize(loss)
    return loss


def precisions(platform):
    """The precision of every product and convolution of a training step."""
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(scope):
        loss = network()
        fluid.Executor(fluid.CPUPlace()).run(startup)
        step, parameters = to_jax(main, ["image"], [loss], scope=scope, platform=platform)
        traced = jax.make_jaxpr(step)(parameters, {"image": np.ones((2, 2, 6, 6), np.float32)})
    return [e.params["precision"] for e in products(traced.jaxpr)]


def products(jaxpr):
    for equation in jaxpr.eqns:
        if equation.primitive.name in ("dot_general", "conv_general_dilated"):
            yield equation
        for inner in jax.extend.core.jaxprs_in_params(equation.params):
            yield from products(inner)


HIGHEST = (jax.lax.Precision.HIGHEST, jax.lax.Precision.HIGHEST)


@pytest.mark.parametrize("platform", ["gpu", "tpu"])
def test_no_operand_is_rounded(platform):
    found = precisions(platform)
    assert len(found) >= 9 and set(found) == {HIGHEST}


def test_a_cpu_rounds_none():
    assert set(precisions("cpu")) == {None}


def test_who_asks_jax_for_speed_gets_it():
    with jax.default_matmul_precision("tensorfloat32"):
        found = precisions("gpu")
    assert found and HIGHEST not in found
