"""Complex values of eager mode, as two variables of real numbers."""

from __future__ import annotations

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import dygraph
from fluidjax.paddle import complex as cpx

RNG = np.random.default_rng(7)
REAL = RNG.normal(size=(2, 3))
A, B = (RNG.normal(size=(2, 3)) + 1j * RNG.normal(size=(2, 3)) for _ in range(2))


def test_layers_are_filed_by_kind() -> None:
    modules = cpx.tensor.math, cpx.tensor.manipulation, cpx.tensor.linalg
    assert [getattr(module, name) for module in modules for name in module.__all__] == [
        getattr(cpx, name) for name in cpx.__all__
    ]


@pytest.mark.parametrize("x", [A, REAL], ids=["complex", "real"])
@pytest.mark.parametrize("y", [B, np.abs(REAL) + 1], ids=["complex", "real"])
@pytest.mark.parametrize(
    ("layer", "what"),
    [
        (cpx.elementwise_add, np.add),
        (cpx.elementwise_sub, np.subtract),
        (cpx.elementwise_mul, np.multiply),
        (cpx.elementwise_div, np.divide),
        (cpx.kron, np.kron),
        (lambda x, y: cpx.matmul(x, y, transpose_y=True, alpha=2.0), lambda x, y: 2 * x @ y.T),
    ],
    ids=["add", "sub", "mul", "div", "kron", "matmul"],
)
def test_two_operands(layer, what, x, y) -> None:
    with dygraph.guard():
        given = dygraph.to_variable(x), dygraph.to_variable(y)
        if not (np.iscomplexobj(x) or np.iscomplexobj(y)):
            with pytest.raises(ValueError, match="must be ComplexVariable"):
                layer(*given)
            return
        np.testing.assert_allclose(layer(*given).numpy(), what(x, y), rtol=1e-9)


@pytest.mark.parametrize(
    ("layer", "what"),
    [
        (lambda x: cpx.reshape(x, [3, -1]), lambda x: x.reshape(3, 2)),
        (lambda x: cpx.transpose(x, [1, 0]), lambda x: x.T),
        (cpx.sum, lambda x: x.sum().reshape(1)),
        (lambda x: cpx.sum(x, dim=1, keep_dim=True), lambda x: x.sum(1, keepdims=True)),
        (lambda x: cpx.trace(x, offset=1), lambda x: np.trace(x, 1).reshape(1)),
    ],
    ids=["reshape", "transpose", "sum", "sum_of_dim", "trace"],
)
def test_one_operand(layer, what) -> None:
    with dygraph.guard():
        x = dygraph.to_variable(A)
        np.testing.assert_allclose(layer(x).numpy(), what(A), rtol=1e-9)
        with pytest.raises(ValueError, match="must be ComplexVariable"):
            layer(x.real)


def test_reshape_in_place_reshapes_its_argument() -> None:
    with dygraph.guard():
        x = dygraph.to_variable(A)
        assert cpx.reshape(x, [6], inplace=True) is x
        assert list(x.shape) == [6]


def test_the_second_operand_is_aligned_by_axis() -> None:
    with dygraph.guard():
        y = A[:, 0]
        for layer, what in ((cpx.elementwise_add, np.add), (cpx.elementwise_div, np.divide)):
            found = layer(dygraph.to_variable(B), dygraph.to_variable(y), axis=0)
            np.testing.assert_allclose(found.numpy(), what(B, y[:, None]), rtol=1e-9)


def test_gradients_flow_through_the_parts() -> None:
    with dygraph.guard():
        x = dygraph.to_variable(REAL)
        x.stop_gradient = False
        product = cpx.elementwise_mul(fluid.ComplexVariable(x, dygraph.to_variable(REAL)), dygraph.to_variable(A))
        fluid.layers.reduce_sum(product.real).backward()
        np.testing.assert_allclose(x.gradient(), A.real)


def test_names_and_dtypes() -> None:
    with dygraph.guard():
        x = dygraph.to_variable(A.astype("complex64"), name="x")
        assert (x.dtype, x.shape, dygraph.to_variable(x)) == ("complex64", [2, 3], x)
        assert dygraph.to_variable(A).dtype == "complex128"
        assert x.name == {"real": "x.real", "imag": "x.imag"}
        x.name = "y"
        assert x.real.name == "y.real"
        x.name = ["a", "b"]
        assert x.name == {"real": "a", "imag": "b"}
        with pytest.raises(ValueError, match="invalid name"):
            x.name = 3
        assert str(x).startswith("REAL: name a")
        with pytest.raises(AssertionError, match="same shape"):
            fluid.ComplexVariable(x.real, dygraph.to_variable(REAL[0].astype("float32")))
        with pytest.raises(AssertionError, match="same data type"):
            fluid.ComplexVariable(x.real, dygraph.to_variable(REAL))
