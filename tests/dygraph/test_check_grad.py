"""check_grad of an eager loss: the ops on the tape, as a program."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fluidjax as fluid

dg, layers = fluid.dygraph, fluid.layers


def drawn(rng: np.random.Generator, *shape: int) -> Any:
    return dg.to_variable(rng.standard_normal(shape).astype("float32"))


def test_every_op_and_parameter_is_checked(rng: np.random.Generator) -> None:
    class Net(dg.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.conv = dg.Conv2D(1, 2, 3, bias_attr=False)
            self.bn = dg.BatchNorm(2)
            self.table = dg.Embedding([5, 3], is_sparse=True)
            self.fc = dg.Linear(8, 3, act="tanh")

        def forward(self, x: Any, ids: Any) -> Any:
            image = layers.reshape(self.bn(self.conv(x)), [-1, 8])
            return self.fc(image) + layers.reshape(self.table(ids), [-1, 3])

    with dg.guard():
        net, x = Net(), drawn(rng, 4, 1, 4, 4)
        x.stop_gradient = False
        ids, label = (dg.to_variable(np.array(v)[:, None]) for v in ([0, 1, 1, 4], [0, 1, 2, 1]))
        loss = layers.mean(layers.softmax_with_cross_entropy(net(x, ids), label))
        report = fluid.check_grad(loss)
        assert report.agrees and fluid.in_dygraph_mode()
        assert [row.what.split(" ")[0] for row in report.ops] == [
            "mean", "softmax_with_cross_entropy", "elementwise_add", "reshape2", "lookup_table_v2", "tanh",
            "elementwise_add", "matmul", "reshape2", "batch_norm", "conv2d",
        ]  # fmt: skip
        trained = [p.name for p in net.parameters() if not p.stop_gradient]
        assert sorted(row.what for row in report.parameters) == sorted([x.name, *trained])
        assert net.fc.weight.gradient() is None
        loss.backward()  # the tape is as it was
        assert net.fc.weight.gradient() is not None
        with pytest.raises(ValueError, match="before its backward pass"):
            fluid.check_grad(loss)


def test_a_wrong_gradient_is_found(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    import lowering

    definition = lowering.get_op("tanh_grad")
    right = definition.fn
    monkeypatch.setattr(definition, "fn", lambda *args, **kwargs: right(*args, **kwargs) * 1.01)
    with dg.guard():
        x = drawn(rng, 2, 3)
        x.stop_gradient = False
        with pytest.raises(fluid.GradientMismatch, match="tanh_grad"):
            fluid.check_grad(layers.mean(layers.tanh(x * x)))


def test_a_loss_that_is_not_recorded_is_refused(rng: np.random.Generator) -> None:
    with dg.guard():
        with pytest.raises(ValueError, match="nothing is recorded"):
            fluid.check_grad(layers.mean(drawn(rng, 2)))
