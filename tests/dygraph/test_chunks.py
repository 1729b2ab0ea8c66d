"""Long sequences of ops: how they are cut, and that those of other lengths share their parts."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.base import garbage
from fluidjax.eager.recorded.pending import recorder
from fluidjax.eager.sequences import blocks, chunks
from fluidjax.eager.sequences.cutting import Cutting

dg, layers = fluid.dygraph, fluid.layers


def parts_of(cutting: Cutting, ops: str, kinds: list[str] | None = None) -> list[str]:
    return [ops[begin:end] for begin, end in cutting.cut(ops, ops if kinds is None else kinds)]


def test_short_periods_share_a_call() -> None:
    ops = "b" + "abcdefgh" * 40 + "a"
    parts = parts_of(Cutting(), ops)
    assert "".join(parts) == ops
    assert max(map(len, parts)) <= 96 and len(parts) <= 8


def test_other_lengths_are_cut_into_the_same_parts() -> None:
    cutting, period = Cutting(), "abcdefghijklmnopqrstuvwxyzABCDEFGHIJ"
    known = set(parts_of(cutting, "1" + period * 9 + "2"))
    for times in (3, 4, 7, 12, 20):
        parts = parts_of(cutting, "1" + period * times + "2")
        assert "".join(parts) == "1" + period * times + "2"
        assert known.issuperset(parts)


def test_what_depends_on_a_length_is_cut_out() -> None:
    cutting, period = Cutting(), "abcdefgh"
    for length in range(4, 10):
        ops = period * length
        parts = parts_of(cutting, ops, [op + str(length) if op == "c" else op for op in ops])
    assert {part for part in parts if "c" in part} == {"c"}


class Cells(dg.Layer):
    """A recurrence whose cell is more ops than a chunk has to have, with a sum over all states."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.new = dg.Linear(8, 4), dg.Linear(8, 4)
        for name, p in self.state_dict().items():
            p.set_value(np.random.RandomState(len(name)).uniform(-0.3, 0.3, p.shape).astype("float32"))

    def forward(self, x: Any) -> Any:
        h, states = layers.fill_constant([3, 4], "float32", 0.1), []
        for k in range(x.shape[0]):
            both = layers.concat([x[k], h], 1)
            gate = layers.sigmoid(self.gate(both))
            h = gate * layers.tanh(self.new(both)) + (1.0 - gate) * h
            states.append(h)
        return layers.reduce_mean(layers.square(layers.stack(states)))


def trained(lengths: Any, *, in_blocks: bool) -> list[Any]:
    """Losses, and the weights at the end."""
    fluid.set_flags({"FLAGS_eager_blocks": in_blocks})
    try:
        with dg.guard():
            net = Cells()
            adam = fluid.optimizer.Adam(0.02, parameter_list=net.parameters())
            found = []
            for length in lengths:
                x = np.random.RandomState(length).uniform(-1, 1, [length, 3, 4]).astype("float32")
                loss = net(dg.to_variable(x))
                loss.backward()
                adam.minimize(loss)
                net.clear_gradients()
                found.append(loss.numpy())
                recorder.blocks.wait()
            return [*found, *[p.numpy() for p in net.parameters()]]
    finally:
        fluid.set_flags({"FLAGS_eager_blocks": True})


def test_lengths_that_never_come_again_share_compiled_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "_SMALL", 0)
    monkeypatch.setattr(chunks, "_TIMES", 12)
    lengths = [*range(4, 16)]
    expected = trained(lengths, in_blocks=False)
    found = trained(lengths, in_blocks=True)
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=1e-6)
    known = recorder.blocks._chunks._known.values()
    compiled = [chunk for chunk in known if chunk.executable is not None]
    assert 2 <= recorder.blocks.compilations == len(compiled) <= 12
    ops = sum([chunk.count * len(chunk.steps) for chunk in compiled])
    assert ops > 0.5 * sum([chunk.count * len(chunk.steps) for chunk in known])


def test_what_is_seldom_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "_SMALL", 0)
    trained(range(4, 8), in_blocks=True)
    assert recorder.blocks.compilations == 0


def test_chunks_are_forgotten_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "_SMALL", 0)
    monkeypatch.setattr(chunks, "_KEPT", 5)
    trained(range(4, 8), in_blocks=True)
    assert len(recorder.blocks._chunks._known) == 5


@pytest.fixture
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_garbage_is_not_collected_within_a_long_step(monkeypatch: pytest.MonkeyPatch, thresholds: None) -> None:
    monkeypatch.setattr(garbage, "_young", {700})
    gc.set_threshold(700, 10, 10)
    trained([4], in_blocks=True)
    assert gc.get_threshold()[0] == 700, "short steps leave it"
    for length in (20, 30, 20):
        trained([length], in_blocks=True)
    young, *older = gc.get_threshold()
    assert 700 < young < 30_000 and older == [10, 10]
    trained([40], in_blocks=True)
    assert gc.get_threshold()[0] > young


@pytest.mark.parametrize("own", [0, 500, 100_000])
def test_a_threshold_of_the_script_stays(own: int, monkeypatch: pytest.MonkeyPatch, thresholds: None) -> None:
    monkeypatch.setattr(garbage, "_young", {700})
    gc.set_threshold(own)
    trained([30], in_blocks=True)
    assert gc.get_threshold()[0] == own


def test_long_sequences_are_forgotten_earlier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "_OPS", 1500)
    trained(range(4, 20), in_blocks=True)
    kept = [point.depth for point in recorder.blocks._entries]
    assert len(kept) > 1 and sum(kept) == recorder.blocks._ops <= 1500
