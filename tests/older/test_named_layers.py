"""Eager layers with a name and without the sizes of their inputs, as scripts of Fluid 1.3 to 1.6 make them."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.dygraph import FC, BatchNorm, Conv2D, Conv2DTranspose, Embedding, LayerNorm, Linear, Pool2D, PRelu

IMAGES = np.random.RandomState(0).uniform(-1, 1, (4, 1, 8, 8)).astype("float32")
LABELS = np.array([[0], [1], [2], [1]], "int64")


class Net(fluid.dygraph.Layer):
    """A small convolution network in the words of Fluid 1.5."""

    def __init__(self, name_scope):
        super().__init__(name_scope)
        self._conv = Conv2D(self.full_name(), num_filters=4, filter_size=3, act="relu")
        self._norm = BatchNorm(self.full_name(), 4)
        self._pool = Pool2D(self.full_name(), pool_size=2, pool_type="max", pool_stride=2)
        self._fc = FC(self.full_name(), 3, act="softmax")

    def forward(self, inputs):
        return self._fc(self._pool(self._norm(self._conv(inputs))))


def loss_of(net):
    cost = fluid.layers.cross_entropy(net(fluid.dygraph.to_variable(IMAGES)), fluid.dygraph.to_variable(LABELS))
    return fluid.layers.mean(cost)


def step(net, optimizer, **settings):
    loss = loss_of(net)
    loss.backward()
    optimizer.minimize(loss, **settings)
    net.clear_gradients()
    return float(loss.numpy())


def test_a_network_trains_without_a_list_of_parameters():
    with fluid.dygraph.guard():
        net = Net("net")
        optimizer = fluid.optimizer.Adam(learning_rate=0.05)
        assert [name for name, _ in net.named_parameters()] == [
            "_norm.weight",
            "_norm.bias",
            "_norm._mean",
            "_norm._variance",
        ]
        losses = [step(net, optimizer) for _ in range(6)]
        assert losses[-1] < 0.5 * losses[0]
        shapes = {name: p.shape for name, p in net.named_parameters()}
        assert shapes["_conv.weight"] == [4, 1, 3, 3] and shapes["_fc.weight"] == [36, 3] and shapes["_fc.bias"] == [3]
        before = net._conv.weight.numpy()
        step(net, fluid.optimizer.SGD(0.5), parameter_list=net._fc.parameters())
        np.testing.assert_array_equal(net._conv.weight.numpy(), before)


def test_it_computes_what_layers_with_sizes_compute():
    with fluid.dygraph.guard():
        net, x = Net("net"), fluid.dygraph.to_variable(IMAGES)
        found = net(x)
        conv, linear = Conv2D(1, 4, 3, act="relu"), Linear(36, 3, act="softmax")
        for mine, other in ((conv, net._conv), (linear, net._fc)):
            mine.set_dict({name: p.numpy() for name, p in other.state_dict().items()})
        hidden = net._pool(net._norm(conv(x)))
        expected = linear(fluid.layers.reshape(hidden, [4, 36]))
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-6)


def test_a_state_is_held_until_the_first_call():
    with fluid.dygraph.guard():
        net = Net("net")
        first = loss_of(net).numpy()
        state = {name: p.numpy() for name, p in net.state_dict().items()}
        again = Net("other")
        again.set_dict(state)
        again.eval()
        assert not again._conv.training
        loss_of(again)
        assert not again._conv.training and isinstance(again._conv, Conv2D)
        again.train()
        np.testing.assert_allclose(loss_of(again).numpy(), first, rtol=1e-6)


def test_other_layers_with_names():
    with fluid.dygraph.guard():
        x = fluid.dygraph.to_variable(IMAGES)
        assert Conv2DTranspose("up", 2, output_size=10)(x).shape == [4, 2, 10, 10]
        assert LayerNorm("norm", begin_norm_axis=2)(x).shape == [4, 1, 8, 8]
        assert PRelu("slopes", "channel")(x).shape == PRelu("all")(x).shape == [4, 1, 8, 8]
        assert Embedding("table", size=[5, 3])(fluid.dygraph.to_variable(LABELS)).shape == [4, 1, 3]
        rows = [fluid.layers.reshape(x, [4, 64]), fluid.layers.reshape(x, [4, 64])]
        both = FC("sum", 2)
        assert both(rows).shape == [4, 2] and len(both.parameters()) == 3
        assert FC("rows", 5, num_flatten_dims=2, bias_attr=False)(x).shape == [4, 1, 5]


def test_the_classes_are_those_of_today():
    assert list(inspect.signature(Conv2D).parameters)[:2] == ["num_channels", "num_filters"]
    with fluid.dygraph.guard():
        with pytest.raises(TypeError, match="as in Fluid 1.6"):
            Conv2D("conv", 4, 3, num_channels=1)
        with pytest.raises(TypeError, match="takes 12 arguments"):
            Conv2D("conv", *range(12))
    with fluid.dygraph.guard():  # no layer has a name here, and optimizers are told their parameters
        Conv2D(1, 4, 3)
        with pytest.raises(AttributeError, match="parameter_list"):
            fluid.optimizer.SGD(0.1)


@pytest.mark.parametrize("kind", ["ByValue", "ByNorm", "ByGlobalNorm"])
def test_minimize_takes_a_clip(kind: str) -> None:
    """As Fluid 1.5 to 1.7 did; the optimizer's own, which replaced it, gives the same weights."""
    given = (-0.01, 0.01) if kind == "ByValue" else (0.01,)
    clip = getattr(fluid.dygraph_grad_clip, "GradClip" + kind)(*given)
    own = getattr(fluid.clip, "GradientClip" + kind)(0.01)
    weights = []
    for settings, call in ({}, {"grad_clip": clip}), ({"grad_clip": own}, {}), ({}, {}):
        with fluid.dygraph.guard(), fluid.unique_name.guard():
            fluid.default_main_program().random_seed = fluid.default_startup_program().random_seed = 3
            net = Net("net")
            loss_of(net)
            sgd = fluid.optimizer.SGD(0.5, parameter_list=net.parameters(), **settings)
            step(net, sgd, **call)
            step(net, sgd, **call)
            assert sgd._grad_clip is settings.get("grad_clip")
            weights.append(np.concatenate([p.numpy().ravel() for p in net.parameters()]))
    np.testing.assert_array_equal(weights[0], weights[1])
    assert not np.array_equal(weights[0], weights[2])


def test_a_clip_for_minimize_is_of_eager_mode() -> None:
    clips = fluid.dygraph_grad_clip
    with pytest.raises(TypeError, match="has no max_value"):
        clips.GradClipByValue(1.0)
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [2, 2]), 2))
        with pytest.raises(TypeError, match="when it is made"):
            fluid.optimizer.SGD(0.1).minimize(loss, grad_clip=clips.GradClipByNorm(1.0))


def test_methods_of_a_variable_under_their_names_of_1_3():
    with fluid.imperative.guard():
        x = fluid.imperative.to_variable(np.array([1.0, -2.0], "float32"))
        x.stop_gradient = False
        loss = fluid.layers.reduce_sum(x * x)
        assert loss._numpy() == 5
        loss._backward()
        np.testing.assert_array_equal(x._gradient(), [2, -4])
        x._clear_gradient()
        np.testing.assert_array_equal(x._gradient(), [0, 0])
        assert not hasattr(x, "_detach")
