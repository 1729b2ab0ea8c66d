"""The functions of ``paddle`` and ``paddle.tensor``, in programs and at once, held against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import paddle

F = np.float32
X = np.array([[0.5, -1.5, 2.0], [3.0, 0.25, -0.75]], F)
Y = np.array([[1.5, 2.0, -1.0], [0.5, 4.0, 1.25]], F)
SQUARE = np.array([[4.0, 1.0], [1.0, 3.0]], F)
INTS = np.array([[3, 1, 2], [0, 5, 4]], "int64")
ROW = np.array([1.0, -2.0, 3.0], F)


def at(*indices: int) -> np.ndarray:
    return np.array(indices, "int64")


# A call, what it is given, what NumPy says.
CASES: dict[str, tuple[Any, tuple[np.ndarray, ...], Any]] = {
    "add": (lambda x, y: paddle.add(x, y), (X, Y), X + Y),
    "add alpha": (lambda x, y: paddle.add(x, y, alpha=2.5), (X, Y), X + 2.5 * Y),
    "addcmul": (lambda x, a, b: paddle.addcmul(x, a, b, value=0.5), (X, Y, X), X + 0.5 * Y * X),
    "addmm": (
        lambda i, x, y: paddle.addmm(input=i, x=x, y=y, alpha=2.0, beta=0.5),
        (SQUARE, X, Y.T),
        0.5 * SQUARE + 2 * X @ Y.T,
    ),
    "allclose": (lambda x, y: paddle.allclose(x, y), (X, X + F(1e-7)), [True]),
    "allclose not": (lambda x, y: paddle.allclose(input=x, other=y, rtol=0.01, atol=0.0), (X, Y), [False]),
    "arange": (lambda: paddle.arange(1, 7, 2, "int64"), (), [1, 3, 5]),
    "argmax": (lambda x: paddle.argmax(x), (X,), 3),
    "argmax axis": (lambda x: paddle.argmax(input=x, axis=-1, keepdims=True, dtype="int32"), (X,), [[2], [0]]),
    "argmax kept": (lambda x: paddle.argmax(x, axis=None, keepdims=True), (X,), [[3]]),
    "bmm": (lambda x, y: paddle.bmm(x, y), (X[None], Y.T[None]), (X @ Y.T)[None]),
    "cholesky": (lambda x: paddle.cholesky(x), (SQUARE,), np.linalg.cholesky(SQUARE)),
    "cholesky upper": (lambda x: paddle.cholesky(x, upper=True), (SQUARE,), np.linalg.cholesky(SQUARE).T),
    "clamp": (lambda x: paddle.clamp(x, min=-1.0, max=1.0), (X,), X.clip(-1, 1)),
    "cross": (lambda x, y: paddle.cross(x, y, dim=1), (X, Y), np.cross(X, Y)),
    "dist": (lambda x, y: paddle.dist(x, y, 2), (X, Y), [np.linalg.norm(X - Y)]),
    "div": (lambda x, y: paddle.div(x, y), (X, Y), X / Y),
    "dot": (lambda x, y: paddle.dot(x, y), (X[0], Y[0]), [X[0] @ Y[0]]),
    "elementwise_equal": (lambda x, y: paddle.elementwise_equal(x, y), (INTS, INTS[::-1].copy()), INTS == INTS[::-1]),
    "elementwise_sum": (lambda x, y: paddle.elementwise_sum([x, y]), (X, Y), X + Y),
    "equal": (lambda x, y: paddle.equal(x, y), (INTS, INTS), [True]),
    "equal not": (lambda x, y: paddle.equal(x, y, axis=-1), (INTS, INTS[:1]), [False]),
    "eye": (lambda: paddle.eye(2, 3, dtype="int32"), (), np.eye(2, 3)),
    "flip": (lambda x: paddle.flip(x, dims=[0, 1]), (X,), X[::-1, ::-1]),
    "full": (lambda: paddle.full(shape=[2, 3], fill_value=2.5, dtype="float64"), (), np.full((2, 3), 2.5)),
    "full_like": (lambda x: paddle.full_like(x, fill_value=2, dtype="int64"), (X,), np.full((2, 3), 2)),
    "gather": (lambda x, i: paddle.gather(x, i), (X, at(1, 0, 1)), X[[1, 0, 1]]),
    "index_sample": (lambda x, i: paddle.index_sample(x, i), (X, INTS[:, :1] * 0 + 1), X[:, 1:2]),
    "index_select": (lambda x, i: paddle.index_select(x, i, dim=1), (X, at(2, 0)), X[:, [2, 0]]),
    "inverse": (lambda x: paddle.inverse(x), (SQUARE,), np.linalg.inv(SQUARE)),
    "kron": (lambda x, y: paddle.kron(x, y), (SQUARE, SQUARE), np.kron(SQUARE, SQUARE)),
    "linspace": (lambda: paddle.linspace(0.0, 1.0, 5, "float32"), (), np.linspace(0, 1, 5)),
    "log1p": (lambda x: paddle.log1p(x), (Y + 2,), np.log1p(Y + 2)),
    "logsumexp": (lambda x: paddle.logsumexp(x, dim=1), (X,), np.log(np.exp(X).sum(1))),
    "matmul": (lambda x, y: paddle.matmul(x, y, transpose_y=True), (X, Y), X @ Y.T),
    "max": (lambda x: paddle.max(x, dim=1, keep_dim=True), (X,), X.max(1, keepdims=True)),
    "meshgrid": (lambda x, y: paddle.meshgrid([x, y])[1], (ROW, ROW[:2]), np.meshgrid(ROW, ROW[:2], indexing="ij")[1]),
    "min": (lambda x: paddle.min(x), (X,), [X.min()]),
    "mm": (lambda x, y: paddle.mm(x, mat2=y), (X, Y.T), X @ Y.T),
    "nonzero": (lambda x: paddle.nonzero(x), (INTS,), np.argwhere(INTS)),
    "norm fro": (lambda x: paddle.norm(x), (X,), [np.linalg.norm(X)]),
    "norm fro axes": (lambda x: paddle.norm(x, p="fro", axis=[0, 1], keepdim=True), (X,), [[np.linalg.norm(X)]]),
    "norm 2": (lambda x: paddle.norm(x, p=2, axis=0), (X,), np.linalg.norm(X, axis=0)),
    "norm 3": (
        lambda x: paddle.norm(x, p=3.0, axis=-1, keepdim=True),
        (X,),
        (abs(X) ** 3).sum(-1, keepdims=True) ** (1 / 3),
    ),
    "ones": (lambda: paddle.ones([2, 3], dtype="int32"), (), np.ones((2, 3))),
    "ones_like": (lambda x: paddle.ones_like(x), (X,), np.ones_like(X)),
    "pow": (lambda x: paddle.pow(x, 3), (X,), X**3),
    "roll": (lambda x: paddle.roll(x, shifts=1, dims=1), (X,), np.roll(X, 1, 1)),
    "sort": (lambda x: paddle.sort(x, axis=1)[0], (X,), np.sort(X, 1)),
    "sort indices": (lambda x: paddle.sort(x, descending=True)[1], (X,), np.argsort(-X, 1)),
    "split": (lambda x: paddle.split(x, num_or_sections=3, dim=1)[2], (X,), X[:, 2:]),
    "squeeze": (lambda x: paddle.squeeze(x, axes=[1]), (X[:, None],), X),
    "stack": (lambda x, y: paddle.stack([x, y], axis=1), (X, Y), np.stack([X, Y], 1)),
    "std": (lambda x: paddle.std(x), (X,), [X.std(ddof=1)]),
    "std axis": (lambda x: paddle.std(x, axis=[1], keepdim=True, unbiased=False), (X,), X.std(1, keepdims=True)),
    "sum": (lambda x: paddle.sum(x, dim=0), (X,), X.sum(0)),
    "sum dtype": (lambda x: paddle.sum(x, dtype="float64"), (X,), [X.astype("float64").sum()]),
    "t": (lambda x: paddle.t(x), (X,), X.T),
    "tanh": (lambda x: paddle.tanh(x), (X,), np.tanh(X)),
    "trace": (lambda x: paddle.trace(x, offset=0, dim1=0, dim2=1), (SQUARE,), [7.0]),
    "tril": (lambda x: paddle.tril(x, diagonal=-1), (SQUARE,), np.tril(SQUARE, -1)),
    "triu": (lambda x: paddle.triu(x), (SQUARE,), np.triu(SQUARE)),
    "unbind": (lambda x: paddle.unbind(x, axis=1)[0], (X,), X[:, 0]),
    "unsqueeze": (lambda x: paddle.unsqueeze(x, [0]), (X,), X[None]),
    "var": (lambda x: paddle.var(x, axis=1), (X,), X.var(1, ddof=1)),
    "var all": (lambda x: paddle.var(x, unbiased=False), (X,), [X.var()]),
    "where": (lambda c, x, y: paddle.where(c, x, y), (X > 0, X, Y), np.where(X > 0, X, Y)),
    "where stretched": (lambda c, x, y: paddle.where(c, x, y), (X > 0, X, Y[:1]), np.where(X > 0, X, Y[:1])),
    "zeros": (lambda: paddle.zeros(shape=[2], dtype="float64"), (), [0, 0]),
    "zeros_like": (lambda x: paddle.zeros_like(x, dtype="int32"), (X,), np.zeros((2, 3))),
    "the later names": (lambda x: paddle.reduce_sum(x=x, axis=1, keepdim=True), (X,), X.sum(1, keepdims=True)),
    "by module": (
        lambda x, y: paddle.tensor.math.elementwise_max(paddle.tensor.linalg.t(x), y),
        (X, Y.T),
        np.maximum(X.T, Y.T),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_static(name: str) -> None:
    call, given, expected = CASES[name]
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        variables = [fluid.data(f"v{i}", a.shape, a.dtype.name) for i, a in enumerate(given)]
        out = call(*variables)
        assert not isinstance(out, fluid.core.VarBase)
        feed = {v.name: a for v, a in zip(variables, given, strict=True)}
        (found,) = fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[out])
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6)
    assert found.shape == np.shape(expected)


@pytest.mark.parametrize("name", CASES)
def test_at_once(name: str) -> None:
    call, given, expected = CASES[name]
    with fluid.dygraph.guard():
        found = call(*map(fluid.dygraph.to_variable, given)).numpy()
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6)
    assert found.shape == np.shape(expected)


def test_sizes_that_the_run_finds() -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 3], "float32")
        out = paddle.var(x, axis=[0])
        (found,) = fluid.Executor(fluid.CPUPlace()).run(feed={"x": X}, fetch_list=[out])
    np.testing.assert_allclose(found, X.var(0, ddof=1), rtol=1e-5)


@pytest.mark.parametrize(("other", "expected"), [(X, True), (X + 1, False), (X[:1], False)])
def test_equal_where_the_run_finds_the_shape(other: np.ndarray, expected: bool) -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        out = paddle.equal(fluid.data("x", [None, 3]), fluid.data("y", [2, 3] if len(other) == 2 else [None, 3]))
        (found,) = fluid.Executor(fluid.CPUPlace()).run(feed={"x": X, "y": other}, fetch_list=[out])
    assert found.tolist() == [expected]


def test_a_result_goes_where_it_is_told() -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x, held = fluid.data("x", [2, 3], "float32"), fluid.layers.fill_constant([1], "float32", 0.0)
        paddle.sqrt(paddle.abs(x), out=held)
        paddle.norm(x, out=(norm := fluid.layers.fill_constant([1], "float32", 0.0)))
        roots, total = fluid.Executor(fluid.CPUPlace()).run(feed={"x": X}, fetch_list=[held, norm])
    np.testing.assert_allclose(roots, np.sqrt(abs(X)), rtol=1e-6)
    np.testing.assert_allclose(total, [np.linalg.norm(X)], rtol=1e-6)


def test_drawn_numbers() -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        calls = [paddle.randn([500]), paddle.rand([500], dtype="float64"), paddle.randint(-3, 4, [500])]
        calls.append(paddle.randperm(10))
        normal, even, whole, order = fluid.Executor(fluid.CPUPlace()).run(fetch_list=calls)
    assert abs(normal.mean()) < 0.3 and 0.7 < normal.std() < 1.3
    assert even.dtype == np.float64 and 0 <= even.min() and even.max() < 1
    assert set(whole) == {-3, -2, -1, 0, 1, 2, 3} and sorted(order) == list(range(10))


def test_outside_of_all_guards_tensors_are_eager() -> None:
    x = paddle.ones([2, 3])
    assert isinstance(x, paddle.Tensor) and isinstance(paddle.matmul(x, paddle.t(x)), paddle.Tensor)
    assert paddle.std(x).numpy().tolist() == [0.0]


@pytest.mark.parametrize(
    ("error", "call"),
    [
        (ValueError, lambda x: paddle.ones([1], device="opu")),
        (ValueError, lambda x: paddle.rand([1], device="opu")),
        (ValueError, lambda x: paddle.linspace(0.0, 1.0, 3, device="opu")),
        (ValueError, lambda x: paddle.norm(x, p="nuc", axis=[0, 1])),
        (ValueError, lambda x: paddle.norm(x, p=2, axis=[0, 1])),
        (ValueError, lambda x: paddle.sum(x, dtype="bool")),
        (TypeError, lambda x: paddle.var(paddle.cast(x, "int32"))),
        (TypeError, lambda x: paddle.std(paddle.cast(x, "int32"))),
        (TypeError, lambda x: paddle.norm(paddle.cast(x, "int64"), p="fro")),
        (TypeError, lambda x: paddle.norm(paddle.cast(x, "int64"), p=2)),
        (TypeError, lambda x: paddle.where(x, x, x)),
        (TypeError, lambda x: paddle.inverse(paddle.cast(x, "int32"))),
        (TypeError, lambda x: paddle.unbind(x, axis=2.0)),
        (TypeError, lambda x: paddle.eye(-1)),
        (ValueError, lambda x: paddle.addmm(x, x, x)),
    ],
)
def test_refused(error: type[Exception], call: Any) -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()), pytest.raises(error):
        call(fluid.data("x", [2, 3], "float32"))
