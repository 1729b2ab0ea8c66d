"""Numbers that follow from shapes: reading them, or passing them to ops, runs nothing that is pending."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.eager.recorded.pending import recorder

dg, layers = fluid.dygraph, fluid.layers


def masked(y: Any, lengths: Any) -> Any:
    mask = layers.sequence_mask(lengths, maxlen=layers.shape(y)[1], dtype="float32")
    return layers.elementwise_mul(y, mask, axis=0)


def flattened(y: Any, lengths: Any) -> Any:
    rows, columns = layers.shape(y)[0], layers.shape(y)[1]
    return layers.reshape(y, [rows * columns, 3]) * layers.fill_constant([rows * columns, 3], "float32", 2.0)


def backwards(y: Any, lengths: Any) -> Any:
    steps = []
    for k in range(3):
        last = layers.shape(y)[1] - 1 - k
        steps.append(layers.slice(y, axes=[1], starts=[last], ends=[last + 1]) * float(k + 1))
    return layers.concat(steps, axis=1)


def averaged(y: Any, lengths: Any) -> Any:
    return y / int(layers.shape(y)[1].numpy()[0])


def along(y: Any, lengths: Any) -> Any:
    """Two sizes at one place: by turns, of axes whose numbers differ and whose tensors are alike."""
    along.turn = 1 - getattr(along, "turn", 0)  # type: ignore[attr-defined]
    size = layers.shape(y)[along.turn]  # type: ignore[attr-defined]
    return layers.reshape(y, [size, -1, 3])[0]


NETS = (masked, flattened, backwards, averaged, along)
LENGTHS = (5, 5, 4, 5)


def trained(net: Callable[..., Any], blocks: bool) -> tuple[list[Any], list[int]]:
    """(losses, gradients and the weight after each step; the batches of pending ops that each step took)."""
    fluid.set_flags({"FLAGS_eager_blocks": blocks})
    along.turn = 0  # type: ignore[attr-defined]
    rng = np.random.RandomState(3)
    found: list[Any] = []
    batches: list[int] = []
    with dg.guard():
        linear = dg.Linear(2, 3)
        linear.weight.set_value(np.array([[0.5, -1, 2], [1, 0.25, -0.5]], "float32"))
        sgd = fluid.optimizer.SGD(0.1, parameter_list=linear.parameters())
        for length in LENGTHS:
            x = dg.to_variable(rng.rand(3, length, 2).astype("float32"))
            before = recorder.serial
            loss = layers.reduce_sum(layers.square(net(linear(x), dg.to_variable(np.array([3, 1, 2])))))
            loss.backward()
            sgd.minimize(loss)
            found += [loss.numpy(), linear.weight.gradient(), linear.weight.numpy()]
            linear.clear_gradients()
            batches.append(recorder.serial - before)
    return found, batches


@pytest.mark.parametrize("net", NETS, ids=lambda net: net.__name__)
def test_sizes_are_known_while_ops_are_pending(net: Callable[..., Any]) -> None:
    try:
        expected, _ = trained(net, blocks=False)
        found, batches = trained(net, blocks=True)
    finally:
        fluid.set_flags({"FLAGS_eager_blocks": True})
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)
    assert batches == [1] * len(LENGTHS)


def test_numbers_of_data_are_no_sizes() -> None:
    """Of an op on given numbers, each call gives those of its own."""
    with dg.guard():
        y = dg.to_variable(np.array([[1, 2, 3], [4, 5, 6]], "float32"))
        for rows in (2, 3, 6, 2):
            size = dg.to_variable(np.array([rows], "int32")) + 0
            assert layers.reshape(y * 2.0, [size, -1]).shape[0] == rows
            assert int((layers.shape(y)[1] + size).numpy()[0]) == 3 + rows


def test_sizes_of_several_axes_are_cut_from_a_shape() -> None:
    """Slices at many places of one tensor take the place as an operand; of a shape they stay numbers."""
    with dg.guard():
        for _ in range(2):
            y = dg.to_variable(np.ones([2, 3, 4, 5], "float32")) * 2.0
            before = recorder.serial
            assert [int(layers.shape(y)[k].numpy()[0]) for k in range(4)] == [2, 3, 4, 5]
            assert recorder.serial == before
