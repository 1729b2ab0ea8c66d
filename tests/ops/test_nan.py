"""A NaN reaches the loss, at sizes where XLA:CPU computes reductions, and what stands around them, by a library."""

from __future__ import annotations

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers

ROWS, WIDTH = 32, 1000  # in small ones a maximum keeps NaN


def loss_of(build, *, labels=True):
    """The mean of what ``build`` makes of [32, 1000] inputs, every one of them NaN."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        x = fluid.data("x", [ROWS, WIDTH])
        feed = {"x": np.full((ROWS, WIDTH), np.nan, "float32")}
        label = fluid.data("label", [ROWS, 1], "int64") if labels else None
        if labels:
            feed["label"] = np.arange(ROWS)[:, None]
        loss = layers.mean(build(x, label) if labels else layers.reduce_sum(build(x), dim=1))
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        return exe.run(main, feed=feed, fetch_list=[loss])[0]


LOSSES = {
    "softmax_with_cross_entropy": layers.softmax_with_cross_entropy,
    "cross_entropy": lambda x, y: layers.cross_entropy(layers.softmax(x), y),
    "softmax": lambda x, y: layers.softmax(x) * -1.0,
    "bpr_loss": layers.bpr_loss,
    "margin_rank_loss": lambda x, y: _ranked(layers.reshape(x, [-1, 1])),
    "sigmoid_cross_entropy": lambda x, y: layers.sigmoid_cross_entropy_with_logits(x, layers.ones_like(x)),
    "hinge": lambda x, y: _hinge(x),
}


def _ranked(x):
    return layers.margin_rank_loss(layers.ones_like(x), x, layers.zeros_like(x))


def _hinge(x):
    block = x.block
    out = block.create_var(dtype="float32")
    block.append_op("hinge_loss", inputs={"Logits": x, "Labels": layers.ones_like(x)}, outputs={"Loss": out})
    return out


@pytest.mark.parametrize("name", LOSSES)
def test_the_loss_of_nan_is_nan(name):
    assert np.isnan(loss_of(LOSSES[name])).all()


# What keeps a NaN in Paddle 1.8.5, too.
WISE = [
    "relu", "relu6", "leaky_relu", "elu", "selu", "brelu", "hard_sigmoid", "hard_swish", "softplus", "soft_relu",
    "swish", "gelu", "logsigmoid", "softshrink", "hard_shrink", "thresholded_relu", "tanh", "sigmoid", "abs", "sqrt",
]  # fmt: skip


@pytest.mark.parametrize("name", WISE)
def test_a_sum_of_activated_nan_is_nan(name):
    """Summed at once, so that the reduction takes the activation along."""
    assert np.isnan(loss_of(getattr(layers, name), labels=False)).all()


def test_clipped_and_bounded_nan_is_nan():
    assert np.isnan(loss_of(lambda x: layers.clip(x, -1.0, 1.0), labels=False)).all()
    assert np.isnan(loss_of(lambda x: layers.elementwise_max(layers.zeros_like(x), x), labels=False)).all()


def test_one_nan_parameter_of_a_large_classifier_shows():
    """Not as the calm ln(1000) of a uniform distribution."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        x, y = fluid.data("x", [ROWS, 8]), fluid.data("y", [ROWS, 1], "int64")
        loss = layers.mean(layers.cross_entropy(layers.fc(x, WIDTH, act="softmax"), y))
        fluid.optimizer.SGD(0.1).minimize(loss)
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        tensor = fluid.global_scope().find_var("fc_0.w_0").get_tensor()
        weight = np.array(tensor)
        weight[3, 7] = np.nan
        tensor.set(weight, fluid.CPUPlace())
        feed = {"x": np.ones((ROWS, 8), "float32"), "y": np.zeros((ROWS, 1), "int64")}
        assert np.isnan(exe.run(main, feed=feed, fetch_list=[loss])[0]).all()
