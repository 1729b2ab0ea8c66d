"""Gradients of gradients through declarative functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fluidjax import dygraph as dg
from fluidjax import layers

X = np.array([[0.3, -0.6, 0.9], [1.0, 0.2, -0.4]], "float32")


def variable(array: np.ndarray) -> Any:
    var = dg.to_variable(array)
    var.stop_gradient = False
    return var


class Net(dg.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = dg.Linear(3, 4, act="sigmoid"), dg.BatchNorm(4), dg.Linear(4, 1)
        for i, p in enumerate(self.parameters()):
            p.set_value(np.random.RandomState(i).uniform(0.1, 1, p.shape).astype("float32"))

    def forward(self, x):
        return self.last(self.norm(self.first(x))) * x[:, 0:1]


def penalty(wrapped: Callable[[Any], Any]) -> list[np.ndarray]:
    """What a gradient penalty leaves: its value, gradients of parameters and input, the running mean."""
    with dg.guard():
        net, x = Net(), variable(X)
        (grad,) = dg.grad([wrapped(net.forward)(x)], [x], create_graph=True)
        loss = layers.reduce_sum(grad * grad) + layers.reduce_sum(grad)
        loss.backward()
        found = [net.first.weight, net.norm.weight, net.last.weight, x]
        return [loss.numpy(), *(v.gradient() for v in found), net.norm._mean.numpy()]


def test_a_gradient_penalty_is_that_of_eager_mode() -> None:
    for one, two in zip(penalty(lambda f: f), penalty(dg.declarative), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-6)


def test_a_third_derivative() -> None:
    fourth = dg.declarative(to_the_fourth)
    with dg.guard():
        x = variable(np.array([2.0, -1.0], "float32"))
        (one,) = dg.grad([fourth(x)], [x], create_graph=True)
        (two,) = dg.grad([one], [x], create_graph=True)
        two.backward()
        assert one.numpy().tolist() == [32, -4] and two.numpy().tolist() == [48, 12]
        assert x.gradient().tolist() == [48, -24]


def to_the_fourth(x):
    return x * x * x * x


def dropped(x):
    return layers.dropout(x * x * x, 0.5, dropout_implementation="upscale_in_train")


def test_what_was_drawn_is_not_drawn_again() -> None:
    with dg.guard():
        x = variable(np.ones((8, 8), "float32"))
        y = dg.declarative(dropped)(x)
        (grad,) = dg.grad([y], [x], create_graph=True)
        layers.reduce_sum(grad).backward()
        assert {0.0, 2.0} == set(y.numpy().reshape(-1).tolist())
        np.testing.assert_allclose(grad.numpy(), 3 * y.numpy())
        np.testing.assert_allclose(x.gradient(), 6 * y.numpy())


def branches(x):
    if layers.mean(x) > 0:
        x = x * x
    return x


def test_through_a_branch_it_is_refused() -> None:
    with dg.guard(), pytest.raises(ValueError, match="has no gradient"):
        x = variable(np.ones(2, "float32"))
        dg.grad([dg.declarative(branches)(x)], [x], create_graph=True)
