"""Numbers that change from step to step: operands, which compile nothing new."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers
from fluidjax.eager import kernels
from fluidjax.eager.recorded.pending import recorder

dg = fluid.dygraph


@pytest.fixture(autouse=True)
def under_guard() -> Iterator[None]:
    with dg.guard():
        yield


def var(*shape: int) -> Any:
    made = dg.to_variable(np.arange(1, np.prod(shape) + 1, dtype="float32").reshape(shape))
    made.stop_gradient = False
    return made


CHANGING: dict[str, Callable[[Any, int], Any]] = {
    "scale": lambda x, k: layers.scale(x, scale=1.0 + k / 8, bias=0.5),
    "bias first": lambda x, k: layers.scale(x, scale=2.0, bias=float(k), bias_after_scale=False),
    "operators": lambda x, k: (x * (0.5 + k)) * x - 0.25 * k,
    "pow": lambda x, k: layers.pow(x, 1.0 + k / 4),
    "clip": lambda x, k: layers.clip(x, 1.0 + k / 2, 9.0 + k / 2),
    "fill_constant": lambda x, k: x * layers.fill_constant([1], "float32", 1.5 * k),
    "slice": lambda x, k: layers.slice(x, [0, 1], [k % 3, k % 2], [k % 3 + 1, k % 2 + 2]),
    "index": lambda x, k: x[k % 3] * x[k % 3, k % 3],
}


def step(change: Callable[[Any, int], Any], k: int) -> tuple[float, list[Any]]:
    x = var(3, 4)
    loss = layers.reduce_sum(layers.square(change(x, k)))
    loss.backward()
    return float(loss), x.gradient().tolist()


@pytest.mark.usefixtures("own_kernels")
@pytest.mark.parametrize("name", CHANGING)
def test_they_compile_nothing_new_and_agree(name: str) -> None:
    found, counts = [], []
    for k in range(16):
        found.append(step(CHANGING[name], k))
        recorder.blocks.wait()
        counts.append((recorder.blocks.compilations, len(kernels._kernels)))
    assert counts[-1][0] <= 3
    assert counts[-1] == counts[-6]
    fluid.set_flags({"FLAGS_eager_blocks": False})
    try:
        expected = [step(CHANGING[name], k) for k in range(16)]
    finally:
        fluid.set_flags({"FLAGS_eager_blocks": True})
    for (loss, gradient), (loss2, gradient2) in zip(found, expected, strict=True):
        assert loss == pytest.approx(loss2, rel=1e-5)
        np.testing.assert_allclose(gradient, gradient2, rtol=1e-5)


FIXED: dict[str, Callable[[Any, float], Any]] = {
    "scale": lambda x, number: layers.scale(x, scale=number),
    "clip": lambda x, number: layers.clip(x, -number, number),
    "fill_constant": lambda x, number: layers.fill_constant([1], "float32", number) + x,
}


@pytest.mark.parametrize("name", FIXED)
def test_a_number_that_moves_in_one_place_is_known_in_others(name: str) -> None:
    x, op = var(2, 5), FIXED[name]
    for number in (3.25, 4.25, 5.25, 6.25):
        op(x, number).numpy()
    points = []
    for _ in range(5):
        for number in (7.25, 8.25):
            moved = op(x, number)
            op(layers.tanh(moved), number).numpy()
        points.append(recorder._tree.points)
    assert points[-1] == points[1]


def test_many_numbers_that_change_are_seen_to_do_so_at_once() -> None:
    def step(k: int) -> None:
        total = x = var(3, 4)
        for n in range(12):
            total = total + x * layers.fill_constant([1], "float32", 1.5 + k + n)
            total = layers.scale(total, scale=0.5 + n + k / 8)
        total.numpy()

    points = []
    for k in range(6):
        step(k)
        points.append(recorder._tree.points)
    recorder.blocks.wait()
    assert points[-1] == points[3] and recorder.blocks.compilations == 1


def test_constants_that_stay_remain_attributes_beside_those_that_change() -> None:
    for k in range(6):
        x = layers.exp(var(7, 5))
        for number in (0.25, 0.5, 0.75, 1.25):
            x = x * layers.fill_constant([1], "float32", number) + layers.fill_constant([1], "float32", 1.0 + k)
        way = [point.kernel.type for point in recorder.point.way()]
        x.numpy()
    assert way.count("fill_constant") == 4


def test_numbers_are_floats_of_32_bits_as_attributes_are() -> None:
    x = dg.to_variable(np.ones([2], "float64"))
    for k in range(6):
        assert (x * (0.1 + k)).numpy().tolist() == [float(np.float32(0.1 + k))] * 2


@pytest.mark.parametrize("cut", [lambda x, k: x[k] * x[k], lambda x, k: x * (0.5 + k) * x])
def test_gradients_of_gradients(cut: Any) -> None:
    for k in range(4):
        x = var(4, 2)
        (first,) = dg.grad(cut(x, k), x, create_graph=True)
        layers.reduce_sum(first).backward()
        expected = np.zeros([4, 2]) if k < 0 else np.full([4, 2], 2 * (0.5 + k))
        if cut(np.ones([4, 2]), k).shape == (2,):
            expected = np.zeros([4, 2])
            expected[k] = 2
        np.testing.assert_allclose(x.gradient(), expected)


def test_seeds_that_change() -> None:
    found = []
    for k in range(8):
        x = var(8, 8)
        found.append(layers.dropout(x, 0.5, seed=k + 1).numpy())
        again = layers.dropout(x, 0.5, seed=k + 1).numpy()
        np.testing.assert_array_equal(found[-1], again)
    assert len({array.tobytes() for array in found}) == 8


def test_a_traced_layer_keeps_its_numbers() -> None:
    class Net(dg.Layer):
        def forward(self, x: Any) -> Any:
            return x[2] * 4.0

    x = var(4, 2)
    for k in range(4):
        float(layers.reduce_sum(x[k] * (1.0 + k)))
    out, traced = dg.TracedLayer.trace(Net(), [x])
    np.testing.assert_array_equal(traced([x])[0], out.numpy())
    np.testing.assert_array_equal(out.numpy(), x.numpy()[2] * 4)


def test_gradients_are_proved_with_the_numbers_that_were_given() -> None:
    net = dg.Linear(2, 2)
    for k in range(4):
        x = var(4, 2)
        loss = layers.reduce_sum(net(x[k : k + 1]) * (1.0 + k))
        fluid.check_grad(loss)
