"""Eager ops that are new run on NumPy, and are compiled once that pays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.eager.first import runs
from fluidjax.eager.kernels import Kernel, kernel_of
from fluidjax.eager.values import spec_of
from lowering.engine.x64 import in_x64

dg, layers = fluid.dygraph, fluid.layers
type_of = type


@pytest.fixture
def compiled(own_kernels: None) -> Iterator[Callable[[], int]]:
    """Returns how much XLA compiled since the last call, of kernels of the test's own."""
    count = 0

    def listen(event: str, duration: float, **about: object) -> None:
        nonlocal count
        count += event.endswith("backend_compile_duration")

    def since() -> int:
        nonlocal count
        found, count = count, 0
        return found

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield since
    jax.monitoring.unregister_event_duration_listener(listen)


@in_x64
def known(type: str, attrs: dict[str, Any], *arrays: np.ndarray) -> Kernel:
    """A new kernel of an op of these inputs."""
    kernel = kernel_of(type, attrs, ("X", "Y")[: len(arrays)], ("Out",))
    fresh = Kernel(type, attrs, kernel.ins, kernel.outs, (True,))
    fresh.infer(tuple(map(spec_of, arrays)))
    return fresh


def grown(sizes: range) -> None:
    """Look at what follows from a row that grows by one element each step, and at its gradient."""
    row = dg.to_variable(np.linspace(-1, 1, sizes.start, dtype="float32"))
    for _ in sizes:
        row.stop_gradient = False
        loss = layers.reduce_sum(layers.softmax(row * row) * layers.tanh(row))
        loss.backward()
        assert np.isfinite(loss.numpy()).all() and np.isfinite(row.gradient()).all()
        row = layers.concat([row.detach(), dg.to_variable(np.full(1, 0.25, "float32"))])


def test_shapes_that_keep_growing_compile_nothing(compiled: Callable[[], int]) -> None:
    with dg.guard():
        grown(range(101, 102))  # exp and tanh of 256 numbers are compiled, once in a process
        compiled()
        grown(range(102, 109))
        assert compiled() == 0
        fluid.set_flags({"FLAGS_eager_numpy": False})
        try:
            grown(range(111, 114))
        finally:
            fluid.set_flags({"FLAGS_eager_numpy": True})
    assert compiled() > 15


def numbers(*shape: int) -> np.ndarray:
    return np.random.uniform(-2, 2, shape).astype("float32")


SAME = {
    "matmul": ({}, ("X", "Y"), ("Out",), [(7, 13), (13, 7)]),
    "matmul_grad": (
        {"transpose_Y": True}, ("X", "Y", "Out@GRAD"), ("X@GRAD", "Y@GRAD"), [(2, 5, 6), (2, 4, 6), (2, 5, 4)],
    ),
    "reduce_sum": ({"dim": [0, 2]}, ("X",), ("Out",), [(3, 50, 6)]),
    "reduce_mean": ({"dim": [1]}, ("X",), ("Out",), [(9, 41)]),
    "mean": ({}, ("X",), ("Out",), [(70, 70)]),
    "softmax": ({}, ("X",), ("Out",), [(7, 9)]),
    "softmax_grad": ({}, ("Out", "Out@GRAD"), ("X@GRAD",), [(7, 9), (7, 9)]),
    "tanh_grad": ({}, ("Out", "Out@GRAD"), ("X@GRAD",), [(7, 9), (7, 9)]),
    "layer_norm": ({}, ("X", "Scale", "Bias"), ("Y", "Mean", "Variance"), [(7, 40), (40,), (40,)]),
    "gelu": ({}, ("X",), ("Out",), [(7, 40)]),
    "conv2d": ({}, ("Input", "Filter"), ("Output",), [(4, 1, 8, 16), (16, 1, 3, 16)]),
    "conv2d_grad": (
        {},
        ("Input", "Filter", "Output@GRAD"),
        ("Input@GRAD", "Filter@GRAD"),
        [(4, 1, 8, 16), (16, 1, 3, 16), (4, 16, 6, 1)],
    ),
    "momentum": (
        {"mu": 0.9},
        ("Param", "Grad", "Velocity", "LearningRate"),
        ("ParamOut", "VelocityOut"),
        [*[(7, 9)] * 3, (1,)],
    ),
    "rmsprop": (
        {"momentum": 0.5},
        ("Param", "MeanSquare", "LearningRate", "Grad", "Moment"),
        ("ParamOut", "MomentOut", "MeanSquareOut"),
        [(7, 9), (7, 9), (1,), (7, 9), (7, 9)],
    ),
    "decayed_adagrad": (
        {}, ("Param", "Grad", "Moment", "LearningRate"), ("ParamOut", "MomentOut"), [*[(7, 9)] * 3, (1,)],
    ),
}  # fmt: skip


@in_x64
@pytest.mark.parametrize("type", SAME)
def test_numpy_rounds_where_xla_rounds(type: str) -> None:
    attrs, ins, outs, shapes = SAME[type]
    arrays = [abs(numbers(*s)) if "Sq" in i or "Mom" in i else numbers(*s) for i, s in zip(ins, shapes, strict=True)]
    kernel = Kernel(type, attrs, ins, outs, (True,) * len(outs))
    kernel.infer(tuple(map(spec_of, arrays)))
    assert kernel.first
    for found, wanted in zip(kernel.run(arrays), kernel.jitted(*arrays), strict=False):
        assert type_of(found) is np.ndarray
        np.testing.assert_array_equal(found, np.asarray(wanted))


SUMS: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "windows of windows": (lambda x: x.sum(1), (2, 1100)),
    "windows of windows down": (lambda x: x.sum(0), (2047, 2)),
    "all of a row": (lambda x: x.sum(), (1, 3072)),
    "squares": (lambda x: (x * x).sum(1), (1, 3072)),
    "side by side": (lambda x: x.sum((2, 3)), (1, 4, 8, 8)),
    "side by side outside": (lambda x: x.sum((1, 2)), (2, 8, 5)),
    "merged planes": (lambda x: x.reshape(2, 3, -1).sum(2), (2, 3, 10, 12)),
    "split rows": (lambda x: x.reshape(3, 4, 40).sum((1, 2)), (3, 160)),
    "a plane's mean": (lambda x: x - x.reshape(1, 2, -1).mean(2).reshape(1, 2, 1, 1), (1, 2, 30, 40)),
    "over a single number": (lambda x: x / (x.sum() + 300), (7, 40)),
    "over a root": (lambda x: x / (((x * x).sum()) ** 0.5 + 1), (7, 40)),
}


@in_x64
@pytest.mark.parametrize("name", SUMS)
def test_sums_and_quotients_have_the_bits_of_compiled_ones(name: str) -> None:
    """What programs and eager mode both make, such as the norm of a gradient, is compared to the bit."""
    rule, shape = SUMS[name]
    compiled = jax.jit(lambda x: (rule(x),))
    first = runs.FirstRuns()
    first.add([jax.ShapeDtypeStruct(shape, np.float32)], compiled.trace(numbers(*shape)))
    for seed in range(3):
        x = np.random.default_rng(seed).standard_normal(shape).astype("float32")
        found = first.run([x])
        assert found is not None
        np.testing.assert_array_equal(found[0], np.asarray(compiled(x)[0]))


@in_x64
def test_the_gradient_of_gelu_differs_from_xla_in_the_last_bit_at_most() -> None:
    arrays = [numbers(7, 40), numbers(7, 40)]
    kernel = Kernel("gelu_grad", {}, ("X", "Out@GRAD"), ("X@GRAD",), (True,))
    kernel.infer(tuple(map(spec_of, arrays)))
    (found,), (wanted,) = kernel.run(arrays), kernel.jitted(*arrays)
    assert type_of(found) is np.ndarray
    np.testing.assert_allclose(found, np.asarray(wanted), rtol=0, atol=2.5e-7)  # of terms up to 4


@in_x64
def test_a_division_by_a_quotient_is_compiled() -> None:
    shapes = [(4, 5)] * 4 + [(1,)]
    slots = ("Param", "SquaredAccumulator", "LinearAccumulator", "Grad", "LearningRate")
    kernel = Kernel("ftrl", {}, slots, ("ParamOut", "SquaredAccumOut", "LinearAccumOut"), (True,) * 3)
    kernel.infer(tuple([spec_of(numbers(*shape)) for shape in shapes]))
    assert not kernel.first


@in_x64
def test_an_op_is_compiled_once_that_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_DISPATCH", 0.0)
    x = np.ones(5, "float32")
    kernel, times = known("tanh", {}, x), 0
    while kernel.first and times < 100_000:
        assert type(kernel.run([x])[0]) is np.ndarray
        times += 1
    assert 500 < times < 100_000  # what compiling takes over what a call takes
    assert isinstance(kernel.run([x])[0], jax.Array)


@in_x64
def test_what_is_large_or_runs_where_bits_repeat_is_compiled_at_once() -> None:
    assert known("tanh", {}, np.ones((100, 100), "float32")).first
    assert not known("tanh", {}, np.ones((2000, 2000), "float32")).first
    assert not known("matmul", {}, np.ones((600, 600), "float32"), np.ones((600, 600), "float32")).first
    assert not known("tanh", {}, np.ones(5, "float16")).first
    fluid.set_flags({"FLAGS_cpu_deterministic": True})
    try:
        assert not known("tanh", {}, np.ones(7, "float32")).first
    finally:
        fluid.set_flags({"FLAGS_cpu_deterministic": False})


@in_x64
def test_a_loop_that_takes_too_long_is_compiled() -> None:
    def count(limit: Any) -> tuple[Any, ...]:
        return (jax.lax.while_loop(lambda k: k < limit, lambda k: k + 1, 0),)

    traced = jax.jit(count).trace(np.int64(0))
    first = runs.FirstRuns()
    first.add([jax.ShapeDtypeStruct((), np.int64)], traced)
    assert first.run([np.asarray(9)]) == (9,)
    assert first.run([np.asarray(10**9)]) is None
    assert not first


@in_x64
def test_results_share_no_memory() -> None:
    x = np.arange(6, dtype="float32")
    for kernel, given in (
        (known("reshape", {"shape": [2, 3]}, x), x),
        (known("transpose", {"axis": [1, 0]}, x.reshape(2, 3)), x.reshape(2, 3)),
        (known("cast", {"in_dtype": 5, "out_dtype": 5}, x), x),
    ):
        for result in kernel.run([given]):
            assert not np.shares_memory(result, x)


def test_constants_compile_nothing(compiled: Callable[[], int]) -> None:
    with dg.guard():
        found = layers.eye(3, dtype="float32"), layers.range(0, 5, 2, "int64"), layers.ones([2], "float64")
        for var, expected in zip(found, (np.eye(3, dtype="float32"), [0, 2, 4], [1, 1]), strict=True):
            np.testing.assert_array_equal(var.numpy(), expected)
        assert found[0].numpy().dtype == np.float32
    assert compiled() == 0


def test_rows_chosen_by_a_mask_are_arrays_like_others(compiled: Callable[[], int]) -> None:
    with dg.guard():
        for count in (3, 5):
            mask, x = np.arange(8) < count, numbers(8, 3)
            given = dg.to_variable(x)
            given.stop_gradient = False
            chosen = layers.gather_nd(given, layers.where(dg.to_variable(mask)))
            layers.reduce_sum(chosen).backward()
            np.testing.assert_array_equal(chosen.numpy(), x[mask])
            np.testing.assert_array_equal(given.gradient(), np.repeat(mask.astype("float32"), 3).reshape(8, 3))
            assert chosen._spec.plain
    assert compiled() == 0
