"""PyLayer in eager mode: both forms, what forward and backward may take and return, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import dygraph, layers
from fluidjax.dygraph import PyLayer

X = np.array([[0.5, -1.0, 2.0], [1.5, 0.0, -0.3]], "float32")


@pytest.fixture(autouse=True)
def guard():
    """Eager mode."""
    with dygraph.guard():
        yield


def leaf(array=X):
    """A variable that wants a gradient."""
    var = dygraph.to_variable(np.array(array))
    var.stop_gradient = False
    return var


class Tanh(PyLayer):
    """Saves its result."""

    @staticmethod
    def forward(ctx, x):
        y = layers.tanh(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensor()
        return dy * (1 - y * y)


class Mixed(PyLayer):
    """Several inputs and outputs, other arguments, attributes of ctx, an input without gradient."""

    @staticmethod
    def forward(ctx, x, factor, y, shift=0.0, label=None):
        ctx.factor = factor
        return x * factor + shift, y * y

    @staticmethod
    def backward(ctx, dx, dy):
        return dx * ctx.factor, dy * 3.0, None


def test_gradients_pass_backward() -> None:
    x = leaf()
    y = Tanh.apply(x * 2)
    layers.reduce_sum(y).backward()
    np.testing.assert_allclose(y.numpy(), np.tanh(2 * X), rtol=1e-5)
    np.testing.assert_allclose(x.gradient(), 2 * (1 - np.tanh(2 * X) ** 2), rtol=1e-4, atol=1e-6)


def test_several_inputs_outputs_and_other_arguments() -> None:
    x, y, label = leaf(), leaf(X + 1), dygraph.to_variable(X)
    a, b = Mixed.apply(x, 4.0, y, shift=1.0, label=label)
    layers.reduce_sum(a + b).backward()
    np.testing.assert_allclose(a.numpy(), X * 4 + 1, rtol=1e-6)
    np.testing.assert_allclose(x.gradient(), np.full_like(X, 4.0))
    np.testing.assert_allclose(y.gradient(), np.full_like(X, 3.0))
    assert label.gradient() is None


def test_an_output_that_is_not_used_has_a_gradient_of_zeros() -> None:
    x, y = leaf(), leaf()
    a, _ = Mixed.apply(x, 4.0, y, label=dygraph.to_variable(X))
    layers.reduce_sum(a).backward()
    np.testing.assert_allclose(y.gradient(), np.zeros_like(X))


def test_nothing_is_recorded_under_no_grad_or_without_inputs_that_want_it() -> None:
    with dygraph.no_grad():
        assert Tanh.apply(leaf()).stop_gradient
    assert Tanh.apply(dygraph.to_variable(X)).stop_gradient
    assert not Tanh.apply(leaf()).stop_gradient


def test_forward_itself_is_not_recorded() -> None:
    class Doubled(PyLayer):
        """Its backward is not that of its forward."""

        @staticmethod
        def forward(ctx, x):
            return layers.exp(x) * x

        @staticmethod
        def backward(ctx, dy):
            return dy * 2

    x = leaf()
    layers.reduce_sum(Doubled.apply(x)).backward()
    np.testing.assert_allclose(x.gradient(), np.full_like(X, 2.0))


def test_nested() -> None:
    class Outer(PyLayer):
        """Uses another one in forward and backward."""

        @staticmethod
        def forward(ctx, x):
            y = Tanh.apply(x)
            ctx.save_for_backward(x)
            return y * 2

        @staticmethod
        def backward(ctx, dy):
            (x,) = ctx.saved_tensor()
            return dy * Tanh.apply(x)

    x = leaf()
    layers.reduce_sum(Outer.apply(x)).backward()
    np.testing.assert_allclose(x.gradient(), np.tanh(X), rtol=1e-5)


def test_second_derivatives_where_backward_is_differentiable() -> None:
    class Cube(PyLayer):
        """x ** 3."""

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        def backward(ctx, dy):
            (x,) = ctx.saved_tensor()
            return dy * x * x * 3.0

    x = leaf()
    (first,) = dygraph.grad([Cube.apply(x)], [x], create_graph=True)
    layers.reduce_sum(first).backward()
    np.testing.assert_allclose(x.gradient(), 6 * X, rtol=1e-5)


def test_an_input_that_is_returned_is_another_variable() -> None:
    class Identity(PyLayer):
        """Doubles gradients."""

        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, dy):
            return dy * 2

    x = leaf()
    y = Identity.apply(x)
    assert y is not x
    layers.reduce_sum(y).backward()
    np.testing.assert_allclose(x.gradient(), np.full_like(X, 2.0))


def test_it_trains_with_an_optimizer() -> None:
    linear = dygraph.Linear(3, 2)
    sgd = fluid.optimizer.SGD(0.1, parameter_list=linear.parameters())
    losses = []
    for _ in range(5):
        loss = layers.reduce_mean(layers.square(Tanh.apply(linear(dygraph.to_variable(X))) - 0.5))
        loss.backward()
        sgd.minimize(loss)
        linear.clear_gradients()
        losses.append(loss.numpy()[0])
    assert losses == sorted(losses, reverse=True)


def returning(value):
    """A PyLayer whose backward returns something."""

    class Returns(PyLayer):
        @staticmethod
        def forward(ctx, x, y):
            return x + y

        @staticmethod
        def backward(ctx, dz):
            return value(dz)

    return Returns


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (lambda g: g, ValueError, "wrong number of gradients"),
        (lambda g: (g, g, None), ValueError, "wrong number of gradients"),
        (lambda g: (g, 1.0), TypeError, "something that is no variable"),
        (lambda g: (g, layers.reshape(g, [6])), ValueError, "does not fit"),
        (lambda g: (g, layers.cast(g, "float64")), ValueError, "does not fit"),
    ],
)
def test_wrong_gradients_are_refused(value, error, text) -> None:
    z = returning(value).apply(leaf(), leaf())
    with pytest.raises(error, match=text):
        layers.reduce_sum(z).backward()


def test_results_that_are_no_variables_are_refused() -> None:
    class Number(PyLayer):
        """Returns a number."""

        @staticmethod
        def forward(ctx, x):
            return 1.0

    with pytest.raises(TypeError, match=r"Number.forward returned something that is no variable"):
        Number.apply(leaf())
    with pytest.raises(NotImplementedError, match="Define it"):
        PyLayer.apply(leaf())


def test_only_variables_are_saved() -> None:
    class Saves(PyLayer):
        """Saves a number."""

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x, 3)
            return x

    with pytest.raises(TypeError, match="save_for_backward"):
        Saves.apply(leaf())


class Old(PyLayer):
    """The older form."""

    @staticmethod
    def forward(inputs):
        return np.tanh(inputs[0])

    @staticmethod
    def backward(inputs):
        _, out, dout = inputs
        return np.array(dout) * (1 - np.square(np.array(out)))


class OldSeveral(PyLayer):
    """Two inputs, two outputs."""

    @staticmethod
    def forward(inputs):
        x, y = inputs
        return x * y, x + y

    @staticmethod
    def backward(inputs):
        x, y, _, _, product, total = inputs
        return [product * y + total, product * x + total]


def test_the_older_form_on_arrays() -> None:
    x = leaf()
    (y,) = Old()(x)
    layers.reduce_sum(y).backward()
    np.testing.assert_allclose(y.numpy(), np.tanh(X), rtol=1e-5)
    np.testing.assert_allclose(x.gradient(), 1 - np.tanh(X) ** 2, rtol=1e-4, atol=1e-6)


def test_the_older_form_with_several() -> None:
    x, y = leaf(), leaf(X + 1)
    outputs = OldSeveral()(x, y)
    assert type(outputs) is list and not any(o.stop_gradient for o in outputs)
    layers.reduce_sum(outputs[0]).backward()
    np.testing.assert_allclose(x.gradient(), X + 1, rtol=1e-6)
    np.testing.assert_allclose(y.gradient(), X, rtol=1e-6)
