"""Backward passes that are done again: the same gradients, and what differs is seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers
from fluidjax.eager.backward import tape
from fluidjax.eager.recorded.pending import recorder

dg = fluid.dygraph


@pytest.fixture(autouse=True)
def guard() -> Iterator[None]:
    with dg.guard():
        yield


@pytest.fixture
def walks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each pass that walked over its ops."""
    found: list[int] = []
    run = tape.Pass.run
    monkeypatch.setattr(tape.Pass, "run", lambda self: found.append(1) or run(self))
    return found


def var(*numbers: float) -> Any:
    made = dg.to_variable(np.array(numbers, "float32"))
    made.stop_gradient = False
    return made


def gradients(step: Callable[[int], list[Any]], steps: int) -> list[list[Any]]:
    return [[v.gradient() if v.gradient() is None else v.gradient().tolist() for v in step(k)] for k in range(steps)]


def compare(step: Callable[[int], list[Any]], steps: int = 8) -> None:
    """Gradients with blocks are those without."""
    found = gradients(step, steps)
    fluid.set_flags({"FLAGS_eager_blocks": False})
    try:
        expected = gradients(step, steps)
    finally:
        fluid.set_flags({"FLAGS_eager_blocks": True})
    assert found == expected


def settle(step: Callable[[int], list[Any]]) -> None:
    """Run until nothing is compiled beside the steps any more, which would change how they run."""
    for _ in range(2):
        recorder.flush()
        recorder.blocks.wait()
        gradients(step, 8)


def product(k: int) -> list[Any]:
    x, y = var(1.0 + k, 2.0), var(3.0, 4.0 + k)
    (layers.exp(x * 0.1) * y + x * x).backward()
    return [x, y]


def test_the_third_pass_walks_no_more(walks: list[int]) -> None:
    compare(product)
    settle(product)
    walked = len(walks)
    product(0)
    gradients(product, 3)
    assert len(walks) <= walked + 1


def test_intermediate_variables_have_gradients_too(walks: list[int]) -> None:
    def step(k: int) -> list[Any]:
        x = var(2.0 + k)
        y = x * x
        z = y * y
        z.backward()
        return [x, y, z]

    compare(step)
    settle(step)
    walked = len(walks)
    gradients(step, 4)
    assert len(walks) == walked


def test_flags_that_change() -> None:
    def step(k: int) -> list[Any]:
        x, y = var(2.0 + k), var(3.0)
        product = x * y
        x.stop_gradient = k % 3 == 1
        (product * y).backward()
        return [x, y]

    compare(step, 9)


def test_values_that_are_set_before_the_pass() -> None:
    def step(k: int) -> list[Any]:
        x, y = var(2.0 + k), var(3.0)
        product = x * y
        if k % 2:
            x.set_value(np.array([10.0 * k], "float32"))
        product.backward()
        return [x, y]

    compare(step)


def test_the_same_variable_twice() -> None:
    def step(k: int) -> list[Any]:
        x, y = var(2.0 + k), var(3.0)
        total = x + (x if k % 3 == 2 else y)
        float(total)  # the pass begins a batch
        total.backward()
        return [x, y]

    compare(step, 9)


def test_looks_between_forward_and_backward(walks: list[int]) -> None:
    def step(k: int) -> list[Any]:
        x, y = var(2.0 + k), var(3.0)
        loss = layers.tanh(x * y) * y
        float(loss)
        loss.backward()
        return [x, y]

    compare(step)
    settle(step)
    walked = len(walks)
    gradients(step, 4)
    assert len(walks) == walked


def test_another_root_and_a_retained_graph() -> None:
    def step(k: int) -> list[Any]:
        x, y = var(2.0 + k), var(3.0)
        a = x * y
        b = a * x
        (a if k % 2 else b).backward(retain_graph=k % 3 == 0)
        if k % 3 == 0:
            (a if k % 2 else b).backward()
        return [x, y, a]

    compare(step, 12)


def test_a_used_graph_is_not_used_again() -> None:
    for k in range(6):
        x = var(2.0 + k)
        a = x * x
        b, c = a * x, a + x
        b.backward()
        with pytest.raises(fluid.core.EnforceNotMet):
            c.backward()


def test_random_ops_in_the_forward_pass() -> None:
    x = var(*np.ones(64))
    for _ in range(6):
        out = layers.dropout(x * 1.5, 0.5)
        out.backward()
        np.testing.assert_array_equal(x.gradient() > 0, out.numpy() > 0)


def test_what_cannot_be_done_again_is_not_kept() -> None:
    table = dg.Embedding([8, 2], is_sparse=True)
    ids = dg.to_variable(np.array([[1], [3]]))
    for k in range(5):
        layers.reduce_sum(table(ids) * float(k + 1)).backward()
        rows, numbers = table.weight.gradient()[1], table.weight.gradient()[0]
        assert rows.tolist() == [1, 3]
        assert numbers.tolist() == [[k + 1.0] * 2] * 2


def test_the_gradient_that_a_pass_begins_with_is_nothing_to_compute() -> None:
    def step(k: int) -> list[Any]:
        x = var(2.0 + k, 3.0)
        loss = layers.reduce_sum(x * x)
        loss.backward()
        pending = recorder.serial
        assert loss.gradient().tolist() == [1.0]
        assert recorder.serial == pending  # nothing ran
        return [loss, x]

    compare(step)


def test_the_gradient_that_a_pass_begins_with_may_be_written_to() -> None:
    for _ in range(4):
        x = var(2.0, 3.0)
        loss = layers.reduce_sum(x * x)
        loss.backward()
        loss._grad_ivar().set_value(np.float32([5]))
        loss.gradient()[...] = 7
        assert loss.gradient().tolist() == [5.0]


def test_a_pass_from_a_stopped_variable_begins_with_zeros() -> None:
    def step(k: int) -> list[Any]:
        x = var(2.0 + k)
        loss = x * x
        loss.stop_gradient = True
        loss.backward()
        return [loss, x]

    compare(step)
    assert gradients(step, 1) == [[[0.0], [0.0]]]
