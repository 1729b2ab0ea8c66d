"""Pending ops: when they run, what is compiled and how often, what is kept in memory, and that no number changes."""

from __future__ import annotations

import gc
import itertools
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.eager.recorded import pending
from fluidjax.eager.recorded.pending import recorder
from fluidjax.eager.sequences import blocks, chunks
from fluidjax.execution.executables import background

dg, layers = fluid.dygraph, fluid.layers


@pytest.fixture(autouse=True)
def under_guard() -> Iterator[None]:
    with dg.guard():
        yield


def var(values: Any, dtype: str = "float32") -> Any:
    return dg.to_variable(np.array(values, dtype))


class Net(dg.Layer):
    """Two layers, and a recurrence between them."""

    def __init__(self, steps: int = 1) -> None:
        super().__init__()
        self.first, self.second, self.steps = dg.Linear(4, 8, act="tanh"), dg.Linear(8, 8), steps
        for name, p in self.state_dict().items():
            p.set_value(np.random.RandomState(len(name)).uniform(-0.3, 0.3, p.shape).astype("float32"))

    def forward(self, x: Any) -> Any:
        h = self.first(x)
        for _ in range(self.steps):
            h = layers.tanh(self.second(h)) * 0.5 + h
        return layers.reduce_mean(layers.square(h))


def train(rounds: int, net: Net, opt: Any, look: bool = True, rows: int = 3) -> list[float]:
    losses = []
    for i in range(rounds):
        loss = net(var(np.random.RandomState(i).uniform(-1, 1, [rows, 4])))
        loss.backward()
        opt.minimize(loss)
        net.clear_gradients()
        if look:
            losses.append(float(loss))
            recorder.blocks.wait()
    return losses


def momentum(net: Net) -> Any:
    return fluid.optimizer.Momentum(0.1, 0.9, parameter_list=net.parameters())


def one_by_one(steps: int) -> list[float]:
    fluid.set_flags({"FLAGS_eager_blocks": 0})
    try:
        net = Net(steps)
        return train(6, net, momentum(net))
    finally:
        fluid.set_flags({"FLAGS_eager_blocks": 1})


def test_nothing_runs_before_somebody_looks() -> None:
    x = var([1.0, 2.0])
    y = x * 2.0 + 1.0
    assert y._value.array is None
    assert (y.shape, y.dtype) == ([2], x.dtype)
    assert y.numpy().tolist() == [3, 5]


def test_what_nobody_holds_is_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    x = var([1.0, 2.0])
    ran: list[str] = []
    kernel = type(layers.square(x)._value) and recorder.point.kernel
    run = type(kernel).run
    monkeypatch.setattr(type(kernel), "run", lambda self, flat: ran.append(self.type) or run(self, flat))
    y = x * 3.0
    layers.exp(x)
    assert y.numpy().tolist() == [3, 6]
    assert ran == ["scale"]


@pytest.mark.parametrize("steps", [1, 12])
def test_all_ways_give_the_same_numbers(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = one_by_one(steps)
    net = Net(steps)
    np.testing.assert_allclose(train(6, net, momentum(net)), expected, rtol=1e-5)
    assert recorder.blocks.compilations == 1
    monkeypatch.setattr(blocks, "_SMALL", 0)
    monkeypatch.setattr(recorder, "blocks", blocks.Blocks())
    with dg.guard():
        net = Net(steps)
        np.testing.assert_allclose(train(6, net, momentum(net)), expected, rtol=1e-5)


def test_long_repetitive_sequences_share_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "_SMALL", 0)
    monkeypatch.setattr(blocks, "_SECONDS", 1e9)
    monkeypatch.setattr(blocks, "_OFTEN", 1e9)
    net = Net(40)
    train(7, net, momentum(net))
    (entry,) = (e for e in recorder.blocks._entries.values() if e.blocks)
    block = entry.blocks[0]
    assert isinstance(block, chunks.Chunked)
    assert 0 < block.compilations <= 12
    assert len(block.parts) > block.compilations


def test_what_comes_again_is_taken_to_the_device_once() -> None:
    kept, ids = var([1.0, 2.0]), var([0, 1], "int64")
    given = kept._value.array
    for _ in range(3):
        assert (kept * 2.0 + 1.0).numpy().tolist() == [3, 5]
        assert (ids + ids).numpy().tolist() == [0, 2]
    assert isinstance(kept._value.array, jax.Array) and given.tolist() == [1, 2]
    assert type(ids._value.array) is np.ndarray, "numbers that are checked before they are used stay on the host"


def test_what_a_step_replaces_stays_where_ops_left_it(monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[int] = []
    monkeypatch.setattr(pending, "to_device", lambda values: moved.append(len(values)))
    state = var([[1.0, 2.0]])
    for _ in range(3):
        state = layers.square(state) * 0.5
        state.numpy()
    assert type(state._value.array) is np.ndarray
    assert sum(moved) == 0


def test_long_sequences_are_compiled_once_they_came_more_often() -> None:
    net = Net(20)
    opt = momentum(net)
    train(3, net, opt)
    recorder.blocks.wait()
    assert recorder.blocks.compilations == 0
    train(4, net, opt)
    recorder.blocks.wait()
    assert recorder.blocks.compilations == 1


def test_lengths_learn_from_each_other() -> None:
    net = Net(20)
    opt = momentum(net)
    train(1, net, opt)
    compiled = []
    for rows in (3, 4, 5, 3, 4, 5, 5):
        train(1, net, opt, rows=rows)
        compiled.append(recorder.blocks.compilations)
    assert compiled == [0, 0, 0, 1, 2, 3, 3]


def test_outputs_that_were_needed_for_other_lengths_are_among_those_of_a_block() -> None:
    kept: list[Any] = []

    def step(rows: int, keep: bool) -> None:
        x = var(np.ones([rows, 2]))
        middle = layers.tanh(x)
        kept[:] = [middle] if keep else []
        (layers.exp(middle) * 2.0).numpy()

    for rows, keep in [(3, True), (4, True), (5, False), (5, False)]:
        step(rows, keep)
    recorder.blocks.wait()
    step(5, True)
    recorder.blocks.wait()
    assert recorder.blocks.compilations == 1


@pytest.mark.parametrize("often", [1e9, 0.0])
def test_chunks_are_not_compiled_for_a_program_that_is_over(often: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "_SMALL", 0)
    monkeypatch.setattr(blocks, "_SECONDS", 1e9)
    monkeypatch.setattr(blocks, "_OFTEN", often)
    monkeypatch.setattr(background, "_ending", True)
    net = Net(40)
    train(7, net, momentum(net))
    (entry,) = (e for e in recorder.blocks._entries.values() if e.blocks)
    assert bool(entry.blocks[0].rest) == bool(often), "the rest waits until the sequence is seen to come often"
    assert recorder.blocks.compilations == 0


ENDS = """
import threading, time
from fluidjax.execution.executables import background

begun = threading.Event()

def work():
    begun.set()
    while not background.ending():
        time.sleep(0.01)
    print("left off", flush=True)

background.submit(work)
background.submit(lambda: print("begun too late", flush=True))
begun.wait()
print("over", flush=True)
"""


def test_work_beside_a_program_is_told_that_it_ends() -> None:
    done = subprocess.run([sys.executable, "-c", ENDS], capture_output=True, text=True, timeout=900, check=True)
    assert done.stdout.split("\n") == ["over", "left off", ""]


def test_parts_that_come_once_are_compiled_where_the_sequence_comes_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "_SMALL", 0)
    monkeypatch.setattr(blocks, "_SECONDS", 1e9)
    monkeypatch.setattr(blocks, "_OFTEN", 0.0)
    expected = one_by_one(12)
    net = Net(12)
    np.testing.assert_allclose(train(6, net, momentum(net)), expected, rtol=1e-5)
    (block,) = (e.blocks[0] for e in recorder.blocks._entries.values() if e.blocks)
    assert isinstance(block, chunks.Chunked)
    assert all(chunk.executable is not None for *_, chunk in block.parts if chunk is not None)
    assert recorder.blocks.compilations == block.compilations


def test_parts_without_lengths_are_compiled_once_for_all_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "_SMALL", 0)
    monkeypatch.setattr(blocks, "_SECONDS", 1e9)
    monkeypatch.setattr(blocks, "_OFTEN", 0.0)
    net = Net(6)
    opt = fluid.optimizer.Adam(0.01, parameter_list=net.parameters(), regularization=fluid.regularizer.L2Decay(0.1))
    train(6, net, opt)
    first = recorder.blocks.compilations
    train(6, net, opt, rows=5)
    assert 0 < recorder.blocks.compilations - first < first
    compiled = [
        {part[-1] for part in e.blocks[0].parts} - {None} for e in recorder.blocks._entries.values() if e.blocks
    ]
    assert any(one & other for one, other in itertools.combinations(compiled, 2))


def test_names_are_counted_alike_when_ops_come_again() -> None:
    def step() -> list[str]:
        with dg.guard():
            x = var(np.ones([2, 6]))
            first, second = layers.split(layers.reshape(x, [-1, 3]), 3, dim=1)[:2]
            parts = [layers.concat([first, second], 1), layers.transpose(x, [1, 0]), layers.relu(x), layers.mean(x)]
            names = [v.name for v in [first, second, *parts]]
            names += [fluid.unique_name.generate(key) for key in ("split", "reshape2", "concat", "relu", "mean")]
            return [*names, str(parts[0].numpy().tolist())]

    assert step() == step() == step()


def test_later_epochs_compile_nothing() -> None:
    net = Net()
    opt = fluid.optimizer.Adam(dg.ExponentialDecay(0.01, 2, 0.9), parameter_list=net.parameters())
    counts = []
    for _ in range(4):
        for rows in (3, 3, 3, 2):  # the last batch is smaller
            train(1, net, opt, rows=rows)
        net.eval()
        float(net(var(np.ones([3, 4]))))
        net.train()
        recorder.blocks.wait()
        counts.append(recorder.blocks.compilations)
    assert counts[1] == counts[2] == counts[3] <= 6


@pytest.mark.parametrize("make", [lambda: dg.NoamDecay(8, 4), lambda: dg.CosineDecay(0.1, 2, 9)])
def test_rates_that_change_compile_nothing(make: Any) -> None:
    net = Net()
    opt = fluid.optimizer.Adam(make(), parameter_list=net.parameters())
    train(8, net, opt)
    assert recorder.blocks.compilations == 1


def test_steps_that_nobody_looks_at_are_blocks_too() -> None:
    net = Net()
    opt = momentum(net)
    train(8, net, opt, look=False)
    recorder.flush()
    recorder.blocks.wait()
    assert recorder.blocks.compilations <= 2
    found = net.first.weight.numpy()
    again = Net()
    train(8, again, momentum(again))
    np.testing.assert_allclose(found, again.first.weight.numpy(), rtol=1e-5)


def test_replaced_parameters_give_their_memory() -> None:
    net = Net()
    opt = momentum(net)
    train(4, net, opt)
    old = net.first.weight._value.array
    assert not old.is_deleted()
    reference = net.first.weight._value
    del old
    array = [reference.array]
    del reference
    train(1, net, opt)
    entry = next(e for e in recorder.blocks._entries.values() if e.blocks)
    assert entry.blocks[0].donated
    assert not array[0].is_deleted()  # held here, so it was copied instead


def test_held_values_survive_the_steps_after_them() -> None:
    net = Net()
    opt = momentum(net)
    kept = []
    for _ in range(6):
        train(1, net, opt)
        kept.append((net.first.weight.detach(), net.first.weight.numpy()))
    for var_, numbers in kept:
        np.testing.assert_array_equal(var_.numpy(), numbers)


def test_another_look_is_another_block_with_the_same_numbers() -> None:
    net = Net()
    opt = momentum(net)
    expected = one_by_one(1)
    losses = []
    for i in range(6):
        loss = net(var(np.random.RandomState(i).uniform(-1, 1, [3, 4])))
        if i % 2:
            losses.append(float(loss))
        loss.backward()
        if i > 2:
            assert net.first.weight.gradient().shape == (4, 8)
        opt.minimize(loss)
        net.clear_gradients()
        if not i % 2:
            losses.append(float(loss))
        recorder.blocks.wait()
    np.testing.assert_allclose(losses, expected, rtol=1e-5)


def test_memory_stays_flat() -> None:
    net = Net()
    opt = momentum(net)
    train(10, net, opt)
    gc.collect()
    arrays, objects = len(jax.live_arrays()), len(gc.get_objects())
    train(100, net, opt)
    gc.collect()
    assert len(jax.live_arrays()) <= arrays + 2
    assert len(gc.get_objects()) <= objects + 500


def test_a_tape_leaves_no_circles() -> None:
    net = Net()
    train(3, net, momentum(net))
    gc.collect()
    gc.disable()
    try:
        before = len(jax.live_arrays())
        train(5, net, momentum(net))
        for _ in range(5):
            float(net(var(np.ones([3, 4]))))  # forward alone
        assert len(jax.live_arrays()) <= before + 8  # the state of one optimizer, and what is held right now
    finally:
        gc.enable()


def test_pending_ops_are_run_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fluidjax.eager.recorded.pending.LIMIT", 10)
    recorder.flush()
    x = var([1.0])
    for _ in range(25):
        x = x + 1.0
    assert recorder.point.depth <= 10
    assert float(x) == 26


def test_random_numbers_differ_in_a_compiled_block() -> None:
    x = var(np.ones([4, 64]))
    found = []
    for _ in range(4):
        found.append(layers.dropout(x * 2.0, 0.5).numpy().tobytes())
        recorder.blocks.wait()
    assert len(set(found)) == 4
    assert recorder.blocks.compilations == 1


def test_values_outlive_the_guard() -> None:
    with dg.guard():
        y = var([1.0]) * 3.0
    assert y.numpy().tolist() == [3]


def test_bit_for_bit_where_a_flag_asks_for_it() -> None:
    def numbers() -> list[Any]:
        net = Net(3)
        losses = train(6, net, fluid.optimizer.Adam(0.05, parameter_list=net.parameters()))
        scaled = [(net.first.weight * (1.0 + k)).numpy().tobytes() for k in range(5)]
        return [losses, scaled, [p.numpy().tobytes() for p in net.parameters()]]

    fluid.set_flags({"FLAGS_cpu_deterministic": True})
    try:
        found = numbers()
        assert recorder.blocks.compilations == 0
        fluid.set_flags({"FLAGS_eager_blocks": False})
        assert numbers() == found
    finally:
        fluid.set_flags({"FLAGS_cpu_deterministic": False, "FLAGS_eager_blocks": True})


def test_ids_are_looked_at_each_time_that_an_op_comes_again() -> None:
    table = fluid.dygraph.Embedding([5, 3])
    for ids, holds in (
        ([1, 2], True),
        ([3, 4], True),
        ([4, 4], True),
        ([5, 0], False),
        ([0, 0], True),
        ([-1, 2], False),
    ):
        given = fluid.dygraph.to_variable(np.array(ids, "int64"))
        if holds:
            assert table(given).numpy().tolist() == table.weight.numpy()[ids].tolist()
        else:
            with pytest.raises(fluid.core.EnforceNotMet, match="lookup_table_v2 cannot take the value"):
                table(given)


def test_what_an_op_admits_beside_its_range_comes_again() -> None:
    scores = fluid.dygraph.to_variable(np.ones((2, 3), "float32"))
    for labels in ([1, 2], [0, 1], [1, -100], [2, 2]):
        label = fluid.dygraph.to_variable(np.array(labels, "int64").reshape(2, 1))
        loss = fluid.layers.softmax_with_cross_entropy(scores, label).numpy().ravel()
        np.testing.assert_allclose(loss, [0 if k < 0 else np.log(3) for k in labels], rtol=1e-6)


def test_blocks_outlive_the_tree_of_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """With more points than a tree has, each step records its sequences anew, and compiles nothing."""
    net = Net()
    opt = fluid.optimizer.Adam(dg.ExponentialDecay(0.01, 2, 0.9), parameter_list=net.parameters())

    def steps() -> list[Any]:
        losses = [train(1, net, opt, rows=rows)[0] for rows in (3, 2, 3, 2)]
        scaled = [float(layers.reduce_sum(layers.exp(net.first.bias) * (1.0 + k))) for k in range(4)]
        recorder.blocks.wait()
        return [*losses, *scaled]

    for _ in range(3):
        steps()
    compiled = recorder.blocks.compilations
    root = recorder._tree.root()
    monkeypatch.setattr("fluidjax.eager.sequences.points._MOST", 10)
    recorder.flush()
    losses = [loss for _ in range(3) for loss in steps()]
    assert recorder._tree.root() is not root
    assert recorder.blocks.compilations == compiled
    assert np.isfinite(losses).all() and losses[-8] < losses[0]
