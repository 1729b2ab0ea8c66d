"""Ops that come again: recognised before anything is made for them, and told from others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers
from fluidjax.eager.recorded.pending import recorder
from fluidjax.eager.tracer import Tracer

dg = fluid.dygraph


@pytest.fixture(autouse=True)
def guard() -> Iterator[None]:
    with dg.guard():
        yield


def rows(dtype: str = "float32") -> Any:
    made = dg.to_variable(np.arange(8, dtype=dtype).reshape(2, 4))
    made.stop_gradient = False
    return made


def ids() -> Any:
    return dg.to_variable(np.array([[1], [3]], "int64"))


REPEATED: dict[str, Callable[[], Any]] = {
    "split": lambda: layers.split(rows(), 2, dim=1)[1],
    "softmax_with_cross_entropy": lambda: layers.softmax_with_cross_entropy(rows(), ids()),
    "one_hot": lambda: layers.one_hot(ids(), 5),
    "leaky_relu": lambda: layers.leaky_relu(rows(), 0.5),
}


@pytest.mark.parametrize("op", REPEATED)
def test_what_comes_again_is_not_put_together_anew(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = REPEATED[op]().numpy()
    REPEATED[op]().numpy()
    traced: list[str] = []
    trace_op = Tracer.trace_op
    monkeypatch.setattr(Tracer, "trace_op", lambda self, *args: traced.append(args[0]) or trace_op(self, *args))
    again = REPEATED[op]()
    assert traced == []
    np.testing.assert_array_equal(again.numpy(), first)


def test_results_are_declared_as_what_they_come_from() -> None:
    for dtype in ("float32", "float32", "float64", "float32"):
        found = layers.split(rows(dtype), 2, dim=1)
        assert [str(part.numpy().dtype) for part in found] == [dtype] * 2


def test_ops_that_take_turns_are_the_same_points() -> None:
    def step(k: int) -> float:
        x = rows()
        y = layers.relu(x) if k % 3 else layers.tanh(x)
        return float(layers.reduce_sum(y if k % 2 else y + x).numpy()[0])

    expected = [step(k) for k in range(6)]
    points = recorder.point.tree.points
    assert [step(k) for k in range(12)] == expected * 2
    assert recorder.point.tree.points == points
