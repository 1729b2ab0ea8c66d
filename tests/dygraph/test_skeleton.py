"""The least that eager mode does: values, ops, gradients, an optimizer."""

from __future__ import annotations

import numpy as np
import pytest

import fluidjax as fluid

dg = fluid.dygraph


def test_a_chain_gives_its_values_and_gradients() -> None:
    with dg.guard():
        x = dg.to_variable(np.array([[1.0, -2.0, 3.0], [0.5, 4.0, -1.5]], "float32"))
        x.stop_gradient = False
        y = (x * x + 1.0)[0]
        fluid.layers.reduce_sum(y).backward()
        np.testing.assert_allclose(y.numpy(), [2, 5, 10])
        np.testing.assert_allclose(x.gradient(), [[2, -4, 6], [0, 0, 0]])


def test_second_derivatives_follow() -> None:
    with dg.guard():
        x = dg.to_variable(np.array([1.0, 2.0], "float32"))
        x.stop_gradient = False
        (first,) = dg.grad(x * x * x, x, create_graph=True)
        (second,) = dg.grad(first, x)
        np.testing.assert_allclose(first.numpy(), [3, 12])
        np.testing.assert_allclose(second.numpy(), [6, 12])
        assert x.gradient() is None


@pytest.mark.parametrize("make", [fluid.optimizer.SGD, fluid.optimizer.Adam])
def test_an_optimizer_lowers_a_loss(make: type) -> None:
    with dg.guard():
        helper = fluid.layer_helper.LayerHelper("linear")
        w = helper.create_parameter(fluid.ParamAttr(), [3, 2], "float32")
        assert (w.name, w.stop_gradient) == ("linear_0.w_0", False)
        opt = make(0.05, parameter_list=[w])
        losses = []
        for _ in range(4):
            loss = fluid.layers.mean(fluid.layers.square(fluid.layers.matmul(fluid.layers.ones([4, 3], "float32"), w)))
            loss.backward()
            opt.minimize(loss)
            opt.clear_gradients()
            losses.append(float(loss))
        assert sorted(losses, reverse=True) == losses
