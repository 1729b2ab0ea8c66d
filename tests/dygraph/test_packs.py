"""Small vectors that blocks replace: they travel together, and nobody sees it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.eager.recorded.pending import recorder
from fluidjax.eager.sequences.packs import Pack, Piece

dg, layers = fluid.dygraph, fluid.layers


@pytest.fixture(autouse=True)
def under_guard() -> Iterator[None]:
    with dg.guard():
        yield


class Net(dg.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.parts = dg.LayerList([dg.Linear(4, 4, act="tanh") for _ in range(3)])
        for k, p in enumerate(self.parameters()):
            p.set_value(np.random.RandomState(k).uniform(-0.5, 0.5, p.shape).astype("float32"))

    def forward(self, x: Any) -> Any:
        for part in self.parts:
            x = part(x)
        return layers.reduce_mean(layers.square(x))


def train(net: Net, opt: Any, rounds: int, rows: int = 3) -> list[float]:
    losses = []
    for k in range(rounds):
        loss = net(dg.to_variable(np.random.RandomState(k).uniform(-1, 1, [rows, 4]).astype("float32")))
        loss.backward()
        opt.minimize(loss)
        net.clear_gradients()
        losses.append(float(loss))
        recorder.blocks.wait()
    return losses


def adam(net: Net) -> Any:
    return fluid.optimizer.Adam(0.05, parameter_list=net.parameters())


def trained(rounds: int, rows: tuple[int, ...] = (3,)) -> tuple[list[float], Net]:
    net = Net()
    opt = adam(net)
    return [loss for _ in range(rounds) for n in rows for loss in train(net, opt, 1, n)], net


def without_blocks(rounds: int, rows: tuple[int, ...] = (3,)) -> tuple[list[float], list[np.ndarray]]:
    fluid.set_flags({"FLAGS_eager_blocks": False})
    try:
        losses, net = trained(rounds, rows)
        return losses, [p.numpy() for p in net.parameters()]
    finally:
        fluid.set_flags({"FLAGS_eager_blocks": True})


def pieces(net: Net) -> list[Piece]:
    return [p._value.array for p in net.parameters() if isinstance(p._value.array, Piece)]


@pytest.mark.parametrize("rows", [(3,), (3, 2)])
def test_they_share_a_buffer_and_agree(rows: tuple[int, ...]) -> None:
    expected, numbers = without_blocks(6, rows)
    losses, net = trained(6, rows)
    found = pieces(net)
    assert len(found) == 3
    assert len({id(piece.buffer) for piece in found}) == 1
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    for p, array in zip(net.parameters(), numbers, strict=True):
        np.testing.assert_allclose(p.numpy(), array, rtol=1e-4, atol=1e-6)


def test_what_is_held_or_set_keeps_its_numbers() -> None:
    expected, _ = without_blocks(8)
    net = Net()
    opt = adam(net)
    losses, kept = [], []
    for k in range(8):
        losses += train(net, opt, 1)
        bias = net.parts[0].bias
        kept.append((bias.detach(), bias.numpy()) if k % 2 else (net.parts[1].bias._value, None))
        if k == 5:
            bias.set_value(bias.numpy())
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    for held, array in kept:
        if array is not None:
            np.testing.assert_array_equal(held.numpy(), array)
        else:
            assert np.isfinite(np.asarray(recorder.array_of(held))).all()


def test_a_vector_that_is_held_is_not_used_again() -> None:
    net = Net()
    opt = adam(net)
    train(net, opt, 6)
    value = net.parts[0].bias._value
    assert isinstance(value.array, Piece)
    numbers = value.array.take()
    train(net, opt, 2)
    np.testing.assert_array_equal(recorder.array_of(value), numbers)
    assert np.abs(net.parts[0].bias.numpy() - numbers).max() > 1e-3


def test_vectors_that_nothing_holds_serve_again() -> None:
    net = Net()
    opt = adam(net)
    train(net, opt, 6)
    before = set(map(id, pieces(net)))
    losses = train(net, opt, 1)
    assert set(map(id, pieces(net))) == before
    assert losses[0] > float(net(dg.to_variable(np.random.RandomState(0).uniform(-1, 1, [3, 4]).astype("float32"))))


def test_state_is_saved_as_ever(tmp_path: Any) -> None:
    _, net = trained(5)
    fluid.save_dygraph(net.state_dict(), str(tmp_path / "net"))
    state, _ = fluid.load_dygraph(str(tmp_path / "net"))
    for name, p in net.state_dict().items():
        np.testing.assert_array_equal(state[name], p.numpy())


def test_memory_stays_flat() -> None:
    net = Net()
    opt = adam(net)
    train(net, opt, 6)
    gc.collect()
    before = len(jax.live_arrays())
    train(net, opt, 30)
    gc.collect()
    assert len(jax.live_arrays()) <= before + 2


def test_a_part_of_a_buffer_is_copied_and_the_whole_one_is_taken_over() -> None:
    pack, part = Pack([(k, k) for k in range(4)], [3, 2, 3, 2]), Pack([(k, k) for k in range(2)], [3, 2])
    made = pack.pieces(np.arange(10.0), [])
    some, used = part.join(made[:2])
    assert used == []
    np.testing.assert_array_equal(some, np.arange(5.0))
    for order in ([1, 0, 2, 3], [0, 1, 2, 2]):  # of other bounds, and one that is missing
        assert pack.join([made[k] for k in order])[1] == []
    del order
    whole, used = pack.join(made)
    assert whole is made[0].buffer
    assert used == made
    made.clear()
    assert pack.pieces(np.arange(10.0) + 1, used) is used
    np.testing.assert_array_equal(np.concatenate([piece.take() for piece in used]), np.arange(10.0) + 1)
