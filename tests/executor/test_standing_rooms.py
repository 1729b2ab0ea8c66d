"""Ragged feeds in memory that stays: what runs leave does not depend on it, and what is fed is looked at as ever."""

from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.execution.lasting import standing_rooms
from tests.executor.conftest import Net, ragged

# The first run compiles, the second settles, the third finds memory for its feeds; runs 1, 2, 4, 8 of a room are timed.
RUNS = 12


def pooled(net: Net, rows: str) -> None:
    """Adds up the rows of each sequence in ``sum``."""
    names = {"Out": ["sum"], "MaxIndex": ["index"]}
    for (name,), dtype in zip(names.values(), ("float32", "int32"), strict=True):
        net.block.create_var(name=name, dtype=dtype)
    net.block.append_op(type="sequence_pool", inputs={"X": [rows]}, outputs=names, attrs={"pooltype": "SUM"})


def summing() -> Net:
    """Adds up the rows of two sequences, and returns the sums and the rows doubled."""
    net = Net()
    net.data("x", [-1, 3], lod_level=1)
    net.parameter("total", np.zeros((2, 3), np.float32))
    pooled(net, "x")
    net.op("elementwise_add", {"X": ["total"], "Y": ["sum"]}, "total")
    net.op("scale", {"X": ["x"]}, "double", scale=2.0)
    return net


def fed(number: float, lengths: list[int]) -> Any:
    return ragged(np.full((sum(lengths), 3), number, np.float32), lengths)


def rooms(net: Net) -> Any:
    (prepared,) = net.program.__dict__["_prepared_cache"].values()
    return prepared._compilations.state().rooms


def stand(net: Net) -> int:
    """How many rooms have steps that ran on memory that stays."""
    return sum(each is not None and each.ran for each in rooms(net).standing.values())


def test_batches_of_changing_sizes() -> None:
    """Shorter ones after longer ones, and the other way round, in two rooms."""
    net, expected, results = summing(), np.zeros((2, 3), np.float32), []
    batches = [[2, 3], [7, 4], [1, 1], [40, 30], [3, 0], [0, 2], [50, 9]]
    for n in range(RUNS * len(batches)):
        first, second = batches[n % len(batches)]
        total, *rows = net.run({"x": fed(n, [first, second])}, ["sum", "double", "x"], return_numpy=False)
        assert np.array(total).tolist() == [[n * first] * 3, [n * second] * 3]
        results.append((n, [first, second], rows))
        expected += np.float32([[n * first] * 3, [n * second] * 3])
    assert stand(net) >= 1
    for n, lengths, rows in results:  # what was fetched does not change with later feeds
        for number, tensor in zip((2 * n, n), rows, strict=True):
            assert np.array(tensor).tolist() == [[number] * 3] * sum(lengths)
            assert tensor.recursive_sequence_lengths() == [lengths]
    np.testing.assert_array_equal(net.get("total"), expected)


def test_the_callers_rows_are_read_in_each_run() -> None:
    net, rows = summing(), np.zeros((5, 3), np.float32)
    tensor = ragged(rows, [2, 3])
    memory = tensor._value
    for n in range(RUNS):
        memory[...] = n
        assert net.run({"x": tensor}, ["sum"])[0].tolist() == [[2.0 * n] * 3, [3.0 * n] * 3]
    assert stand(net) == 1


def test_a_lod_that_does_not_fit_is_refused_as_in_other_runs() -> None:
    net = summing()
    for _ in range(RUNS):
        net.run({"x": fed(1, [2, 3])}, ["sum"])
    before, wrong = net.get("total"), fed(1, [2, 3])
    wrong._lod = [[0, 2, 6]]
    with pytest.raises(ValueError, match="ends at 6, but there are 5"):
        net.run({"x": wrong}, ["sum"])
    np.testing.assert_array_equal(net.get("total"), before)
    assert net.run({"x": fed(1, [2, 3])}, ["sum"])[0].tolist() == [[2.0] * 3, [3.0] * 3]


def test_a_batch_of_more_sequences_between() -> None:
    """One such batch leaves the rooms as they are; more give them up."""
    net = Net()
    net.data("x", [-1, 3], lod_level=1)
    net.parameter("total", np.zeros(3, np.float32))
    net.op("reduce_sum", {"X": ["x"]}, "sum", dim=[0])
    net.op("elementwise_add", {"X": ["total"], "Y": ["sum"]}, "total")
    for _ in range(RUNS):
        net.run({"x": fed(1, [2, 3])}, ["sum"])
    known, families = rooms(net), []
    for lengths in ([2, 3, 4], [1, 1, 1], [2, 2, 2], [2, 3], [2, 3], [2, 2]):
        assert net.run({"x": fed(1, lengths)}, ["sum"])[0].tolist() == [float(sum(lengths))] * 3
        families.append(rooms(net).family is known.family)
    assert families == [True, True, False, False, True, True]
    assert net.get("total").tolist() == [5.0 * RUNS + 32.0] * 3


def test_rows_to_be_paired_that_differ_in_number() -> None:
    """What a step expects of its feeds is looked at before it runs on memory that stays."""
    net = summing()
    net.data("y", [-1, 3], lod_level=1)
    net.op("elementwise_add", {"X": ["x"], "Y": ["y"]}, "both")
    for n in range(RUNS):
        net.run({"x": fed(1, [2, 3]), "y": fed(n, [2, 3])}, ["both"], return_numpy=False)
    assert stand(net) == 1
    for lengths in ([2, 4], [4, 2]):  # in the room of five rows
        with pytest.raises(fluid.core.EnforceNotMet):
            net.run({"x": fed(1, [2, 3]), "y": fed(1, lengths)}, ["both"], return_numpy=False)
    assert net.get("total").tolist() == [[2.0 * RUNS] * 3, [3.0 * RUNS] * 3]
    (both,) = net.run({"x": fed(1, [2, 3]), "y": fed(7, [2, 3])}, ["both"], return_numpy=False)
    assert np.array(both).tolist() == [[8.0] * 3] * 5


def test_faults_of_ids_are_found() -> None:
    net = Net()
    net.data("ids", [-1, 1], "int64", lod_level=1)
    net.parameter("table", np.arange(8, dtype=np.float32).reshape(4, 2))
    net.parameter("total", np.zeros((2, 2), np.float32))
    net.op("lookup_table", {"W": ["table"], "Ids": ["ids"]}, "rows")
    pooled(net, "rows")
    net.op("elementwise_add", {"X": ["total"], "Y": ["sum"]}, "total")
    good, bad = np.array([[1], [3], [0]]), np.array([[1], [4], [0]])
    for _ in range(RUNS):
        net.run({"ids": ragged(good, [1, 2])}, ["sum"])
    assert stand(net) == 1
    with pytest.raises(fluid.core.EnforceNotMet, match="4"):
        net.run({"ids": ragged(bad, [1, 2])}, ["sum"])
    assert net.run({"ids": ragged(good, [2, 1])}, ["sum"])[0].tolist() == [[8.0, 10.0], [0.0, 1.0]]
    np.testing.assert_array_equal(net.get("total"), RUNS * np.float32([[2, 3], [6, 8]]) + np.float32([[8, 10], [0, 1]]))


def test_seeds_are_drawn_as_in_other_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """On memory that stays and without."""

    def drawn() -> list[Any]:
        net = summing()
        net.program.random_seed = 7
        net.op("uniform_random", {}, "noise", shape=[4])
        noise = [net.run({"x": fed(1, [9, 3])}, ["noise"])[0].tolist() for _ in range(RUNS)]
        stood.append(stand(net))
        return noise

    stood: list[int] = []
    found = drawn()
    monkeypatch.setattr(standing_rooms.Rooms, "visit", lambda self, feed, beside: None)
    assert found == drawn()
    assert stood == [1, 0]
    assert len(set(map(str, found))) == RUNS


def test_memory_for_rooms_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches in a room for which none is left are fed as ever."""
    monkeypatch.setattr(standing_rooms, "MOST", 4 * 3 * 64)
    net = summing()
    for n in range(2 * RUNS):
        lengths = [100, 100] if n % 2 else [1, 2]
        (found,) = net.run({"x": fed(n, lengths)}, ["sum"])
        assert found.tolist() == [[float(n * length)] * 3 for length in lengths]
    kinds = {room.sizes[0] > 64: each is None for room, each in rooms(net).standing.items()}
    assert kinds[True] and rooms(net).left >= 0
