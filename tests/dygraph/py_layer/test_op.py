"""PyLayers in static programs: the py_layer op, its gradient, and what a loaded program may do with it."""

from __future__ import annotations

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import dygraph, layers
from fluidjax.files.errors import UntrustedProgramError
from tests.dygraph.py_layer.test_py_layer import Old, OldSeveral, Tanh

X = np.array([[0.5, -1.0], [1.5, 0.25], [0.0, 2.0]], "float32")
CALLS: list[str] = []
PROVEN = {"py_layer"}


class Scaled(dygraph.PyLayer):
    """Another argument, an attribute of ctx, two outputs."""

    @staticmethod
    def forward(ctx, x, y, factor=1.0):
        CALLS.append("forward")
        ctx.factor = factor
        return x * factor, layers.square(y)

    @staticmethod
    def backward(ctx, dx, dy):
        CALLS.append("backward")
        return dx * ctx.factor, None


@pytest.fixture
def programs():
    """New default programs and a new scope."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        CALLS.clear()
        yield main, startup


def data(name):
    """A fed variable that wants a gradient."""
    var = fluid.data(name, [None, 2], "float32")
    var.stop_gradient = False
    return var


def outputs(*names):
    """Variables for the results."""
    block = fluid.default_main_program().global_block()
    return [block.create_var(name=name, dtype="float32", shape=[-1, 2]) for name in names]


def run(fetches, **feeds):
    """The fetched values."""
    return fluid.Executor(fluid.CPUPlace()).run(feed=feeds, fetch_list=fetches)


@pytest.mark.parametrize("layer", [Tanh, Old], ids=["context", "older"])
def test_forward_and_gradient(programs, layer) -> None:
    x = data("x")
    (o,) = outputs("o")
    layers.py_layer(layer, layers.scale(x, 2.0), o)
    (grad,) = fluid.gradients([layers.reduce_sum(o)], [x])
    value, found = run([o, grad], x=X)
    np.testing.assert_allclose(value, np.tanh(2 * X), rtol=1e-5)
    np.testing.assert_allclose(found, 2 * (1 - np.tanh(2 * X) ** 2), rtol=1e-4, atol=1e-6)


def test_the_context_passes_from_forward_to_backward(programs) -> None:
    x, y = data("x"), data("y")
    a, b = outputs("a", "b")
    layers.py_layer(Scaled, [x, y], [a, b], factor=3.0)
    grads = fluid.gradients([layers.reduce_sum(layers.elementwise_add(a, b))], [x, y])
    found = run([a, b, *grads], x=X, y=X + 1)
    for value, expected in zip(found, (3 * X, (X + 1) ** 2, np.full_like(X, 3.0), np.zeros_like(X)), strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-6)
    assert CALLS == ["forward", "backward"]


def test_an_output_that_is_not_used(programs) -> None:
    x, y = data("x"), data("y")
    product, total = outputs("product", "total")
    layers.py_layer(OldSeveral, [x, y], [product, total])
    grads = fluid.gradients([layers.reduce_sum(product)], [x, y])
    found = run(grads, x=X, y=X + 1)
    np.testing.assert_allclose(found[0], X + 1, rtol=1e-6)
    np.testing.assert_allclose(found[1], X, rtol=1e-6)


def test_it_trains(programs) -> None:
    x = fluid.data("x", [None, 2], "float32")
    hidden = layers.fc(x, 2)
    (o,) = outputs("o")
    layers.py_layer(Tanh, hidden, o)
    loss = layers.reduce_mean(layers.square(o - 0.5))
    fluid.optimizer.SGD(0.2).minimize(loss)
    fluid.Executor(fluid.CPUPlace()).run(programs[1])
    losses = [float(run([loss], x=X)[0][0]) for _ in range(5)]
    assert losses == sorted(losses, reverse=True)


def test_in_eager_mode_it_is_apply() -> None:
    with dygraph.guard():
        x = dygraph.to_variable(X)
        x.stop_gradient = False
        layers.reduce_sum(layers.py_layer(Tanh, x)).backward()
        np.testing.assert_allclose(x.gradient(), 1 - np.tanh(X) ** 2, rtol=1e-4, atol=1e-6)


def test_bad_use_is_refused(programs) -> None:
    x = data("x")
    (o,) = outputs("o")
    with pytest.raises(TypeError, match=r"subclass of fluid.dygraph.PyLayer"):
        layers.py_layer(lambda x: x, x, o)
    with pytest.raises(ValueError, match="Output shapes of py_layer"):
        layers.py_layer(Tanh, x, programs[0].global_block().create_var(name="none", dtype="float32"))
    layers.py_layer(Scaled, [x, x], o)
    with pytest.raises(Exception, match="returned 2 values, expected one"):
        run([o], x=X)


def loaded(main) -> fluid.Program:
    """The program as another process would load it."""
    return fluid.Program.parse_from_string(main.desc.serialize_to_string())


def test_a_loaded_program_runs_no_python_unasked(programs) -> None:
    x = data("x")
    (o,) = outputs("o")
    layers.py_layer(Tanh, x, o)
    (grad,) = fluid.gradients([layers.reduce_sum(o)], [x])
    program = loaded(programs[0])
    op = next(op for op in program.global_block().ops if op.type == "py_layer")
    assert op.attr("layer_name").endswith("test_py_layer.Tanh")
    exe = fluid.Executor(fluid.CPUPlace())
    with pytest.raises(UntrustedProgramError, match="py_layer"):
        exe.run(program, feed={"x": X}, fetch_list=["o"])
    fluid.io.bind_py_layer(program, "o", Old)
    found = exe.run(program, feed={"x": X}, fetch_list=["o", grad.name])
    np.testing.assert_allclose(found[0], np.tanh(X), rtol=1e-5)
    np.testing.assert_allclose(found[1], 1 - np.tanh(X) ** 2, rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match="no py_layer of the program writes 'missing'"):
        fluid.io.bind_py_layer(program, "missing", Old)


def test_in_a_declarative_function() -> None:
    @dygraph.declarative
    def net(x):
        if layers.mean(x) > 0:
            x = x * 2
        return layers.reduce_sum(Tanh.apply(x))

    with dygraph.guard():
        x = dygraph.to_variable(X)
        x.stop_gradient = False
        net(x).backward()
        np.testing.assert_allclose(x.gradient(), 2 * (1 - np.tanh(2 * X) ** 2), rtol=1e-4, atol=1e-6)
