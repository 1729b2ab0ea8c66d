"""TracedLayer and StaticModelRunner: an eager net as a program, and a saved program as an eager layer."""

from __future__ import annotations

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import dygraph, layers
from fluidjax.dygraph import StaticModelRunner, TracedLayer, to_variable

X = np.linspace(-1, 1, 24, dtype="float32").reshape(4, 6)


class Net(dygraph.Layer):
    """Linear, batch statistics, dropout, two results."""

    def __init__(self):
        super().__init__()
        self.first = dygraph.Linear(6, 5, act="tanh")
        self.norm = dygraph.BatchNorm(5)
        self.second = dygraph.Linear(5, 3)

    def forward(self, x, flag=True):
        y = self.norm(self.first(x) * 2)
        if flag:
            y = self.second(y)
        return layers.softmax(y), x + 1


def test_a_traced_net_computes_what_the_net_does() -> None:
    with dygraph.guard():
        net = Net()
        net.eval()
        outputs, traced = TracedLayer.trace(net, [to_variable(X)])
        for array in (X, X[:2] * 3):
            expected = net(to_variable(array))
            found = traced([to_variable(array)])
            for one, two in zip(expected, found, strict=True):
                np.testing.assert_allclose(one.numpy(), two, rtol=1e-5)
        assert isinstance(outputs, tuple)
    np.testing.assert_allclose(traced([X])[0], outputs[0].numpy(), rtol=1e-5)


def test_the_program_holds_the_ops_that_ran() -> None:
    with dygraph.guard():
        net = Net()
        _, traced = TracedLayer.trace(net, to_variable(X))
        names = [p.name for p in net.parameters()]
    block = traced.program.global_block()
    types = [op.type for op in block.ops]
    assert types.count("matmul") == 2 and "batch_norm" in types and types[-1] == "scale"
    assert {"feed_0", "fetch_0", "fetch_1"} <= set(block.vars)
    written = [name for op in block.ops for name in op.output("Out") + op.output("Y") if name.startswith("t_")]
    assert written[:2] == ["t_0", "t_1"]
    assert all(block.var(name).persistable for name in names)
    assert block.ops[types.index("batch_norm")].attr("is_test") is False
    assert all(op.attr("op_callstack") == [] for op in block.ops), "the call of trace made none of them"


def test_gradients_are_recorded_while_tracing() -> None:
    with dygraph.guard():
        net = Net()
        (y, _), _ = TracedLayer.trace(net, [to_variable(X)])
        layers.reduce_mean(y * y).backward()
        assert net.first.weight.gradient() is not None


def test_parameters_are_shared() -> None:
    with dygraph.guard():
        net = Net()
        net.eval()
        _, traced = TracedLayer.trace(net, [to_variable(X)])
        net.second.weight.set_value(np.zeros((5, 3), "float32"))
        np.testing.assert_allclose(traced([to_variable(X)])[0], np.full((4, 3), 1 / 3), rtol=1e-5)


def test_bad_use_is_refused() -> None:
    with dygraph.guard():
        with pytest.raises(AssertionError, match="expected a Layer"):
            TracedLayer.trace(lambda x: x, [to_variable(X)])
        _, traced = TracedLayer.trace(Net(), [to_variable(X)])
        traced.set_strategy()
        with pytest.raises(AssertionError, match="list or tuple"):
            traced(to_variable(X))
        with pytest.raises(AttributeError):
            traced([X])
        traced([to_variable(X)])
        with pytest.raises(AssertionError, match="Cannot set strategy after run"):
            traced.set_strategy()
        with pytest.raises(IndexError):
            traced.save_inference_model("nowhere", fetch=[5])
    with pytest.raises(AssertionError):
        TracedLayer.trace(None, [X])


def save(folder, trained: bool = False) -> np.ndarray:
    """Save a net; what it computes for X."""
    with dygraph.guard():
        net = Net()
        if not trained:
            net.eval()
        _, traced = TracedLayer.trace(net, [to_variable(X)])
        traced.save_inference_model(str(folder), feed=[0], fetch=[0])
        net.eval()
        return net(to_variable(X))[0].numpy()


def test_saved_it_is_an_inference_model(tmp_path) -> None:
    expected = save(tmp_path)
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        program, feeds, fetches = fluid.io.load_inference_model(str(tmp_path), exe)
        np.testing.assert_allclose(exe.run(program, feed={feeds[0]: X}, fetch_list=fetches)[0], expected, rtol=1e-5)


def test_a_saved_model_runs_and_trains_as_a_layer(tmp_path) -> None:
    expected = save(tmp_path)
    with dygraph.guard():
        runner = StaticModelRunner(str(tmp_path))
        names = list(runner.state_dict())
        assert names and all(name.endswith("@LOADED") for name in names)
        runner.eval()
        np.testing.assert_allclose(runner(X).numpy(), expected, rtol=1e-5)
        runner.train()
        trained = [p for p in runner.parameters() if not p.stop_gradient]
        assert len(trained) == 6 and len(runner.parameters()) == 8
        sgd = fluid.optimizer.SGD(0.05, parameter_list=trained)
        label = to_variable(np.array([[0], [1], [2], [0]], "int64"))
        losses = []
        for _ in range(4):
            loss = layers.reduce_mean(layers.cross_entropy(runner(to_variable(X)), label))
            loss.backward()
            sgd.minimize(loss)
            runner.clear_gradients()
            losses.append(float(loss.numpy()[0]))
        assert losses == sorted(losses, reverse=True)
        with pytest.raises(TypeError, match=r"StaticModelRunner.forward"):
            runner("text")
        with pytest.raises(ValueError, match="no directory"):
            StaticModelRunner(str(tmp_path / "missing"))
