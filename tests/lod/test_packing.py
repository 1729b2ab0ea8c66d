"""Segments, offsets and packed order: known offsets, traced ones, and the forms for large inputs give the same."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lowering.ragged import rows as sequence
from lowering.ragged import time_major as packing
from lowering.values import LoDArray

LENGTHS = [
    [2, 3, 2],
    [0, 4, 0, 0, 1],
    [5],
    [0, 0],
    [1, 0, 3, 3, 2, 0, 3],
]


def offsets_of(lengths):
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


def in_order(lengths, reverse):
    """Rows by step, longest sequence first, written out."""
    off = offsets_of(lengths)
    ranked = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    found = []
    for t in range(max(lengths)):
        for i in ranked:
            if t < lengths[i]:
                found.append(off[i + 1] - 1 - t if reverse else off[i] + t)
    return found


def packed(lengths, capacity, reverse, traced):
    off = offsets_of(lengths)

    def make(off):
        p = packing.pack(LoDArray(jnp.zeros((capacity, 1)), (off,)), off, reverse=reverse)
        return {f.name: getattr(p, f.name) for f in dataclasses.fields(p) if f.name not in ("n", "capacity", "reverse")}

    found = jax.jit(make)(off) if traced else make(off)
    return {name: np.asarray(value) for name, value in found.items()}


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_packed_order(lengths, reverse, large, monkeypatch):
    if large:
        monkeypatch.setattr(packing, "DENSE_PAIRS", 0)
        monkeypatch.setattr(sequence, "DENSE_PAIRS", 0)
    rows = sum(lengths)
    want = in_order(lengths, reverse)
    for traced in (False, True):
        p = packed(lengths, rows + 3, reverse, traced)
        assert p["source"][:rows].tolist() == want
        assert [want[i] for i in p["target"][:rows]] == list(range(rows))
        assert p["sizes"].tolist() == sorted(lengths, reverse=True)
        assert p["order"][p["rank"]].tolist() == list(range(len(lengths)))
        assert sorted(p["back"][:rows].tolist()) == list(range(rows))


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_segments(lengths, monkeypatch):
    off, rows = offsets_of(lengths), np.arange(sum(lengths) + 2, dtype=np.int32)
    want = np.concatenate([np.repeat(np.arange(len(lengths)), lengths), [len(lengths)] * 2])
    np.testing.assert_array_equal(sequence.segments(off, rows), want)
    traced = jax.jit(lambda o: sequence.segments(o, rows))
    np.testing.assert_array_equal(traced(off), want)
    monkeypatch.setattr(sequence, "DENSE_PAIRS", 0)
    np.testing.assert_array_equal(jax.jit(lambda o: sequence.segments(o, rows))(off), want)


@pytest.mark.parametrize("count", [1, 7, 3000])
def test_offsets(count, rng):
    lengths = rng.integers(0, 5, count).astype(np.int32)
    np.testing.assert_array_equal(jax.jit(sequence.offsets_of)(lengths), offsets_of(lengths))
    np.testing.assert_array_equal(sequence.offsets_of(lengths), offsets_of(lengths))


def test_ranks_of_many_sequences(rng):
    sizes = rng.integers(0, 9, 1500).astype(np.int32)
    order, rank = (np.asarray(v) for v in jax.jit(packing._ranks)(sizes))
    np.testing.assert_array_equal(order, np.argsort(-sizes, kind="stable"))
    np.testing.assert_array_equal(order[rank], np.arange(1500))


def test_stretches_of_rows():
    x = jnp.array([[1.0, 2], [3, 4]])
    assert sequence.stretch(x, 0, 3).tolist() == [[1, 2], [3, 4], [0, 0]]
    assert sequence.stretch(x, -1, 2).tolist() == [[0, 0], [1, 2]]
    assert sequence.stretch(x, 1, 3).tolist() == [[3, 4], [0, 0], [0, 0]]
    assert sequence.stretch(x[:0], 0, 2).tolist() == [[0, 0], [0, 0]]
    assert sequence.stretch(jnp.array([True]), 0, 2).tolist() == [True, False]
    assert "concatenate" not in str(jax.make_jaxpr(lambda x: sequence.stretch(x, -1, 3))(x))


def test_shifted_rows():
    x = jnp.arange(1.0, 5.0)
    assert sequence.shifted(x, 1).tolist() == [2, 3, 4, 0]
    assert sequence.shifted(x, -1).tolist() == [0, 1, 2, 3]
    assert sequence.shifted(x, 0).tolist() == [1, 2, 3, 4]
    for by in (4, -4, 9, -9):
        assert sequence.shifted(x, by).tolist() == [0, 0, 0, 0]


def test_a_tensor_without_lod_is_named():
    with pytest.raises(ValueError, match="without LoD"):
        sequence.offsets(LoDArray(jnp.zeros((3, 2))))


def loops(count, columns):
    """How many loops a recurrence over ``count`` sequences runs in, and one back."""
    off = offsets_of([1] * count)

    def recur(off, x):
        p = packing.pack(LoDArray(x, (off,)), off)
        step = lambda carry, rows, alive: (carry + rows, (rows,))  # noqa: E731
        back = lambda carry, rows, alive: (carry + rows, rows)  # noqa: E731
        carry, reads = jnp.zeros((count, columns)), p.packed(x)
        return packing.run_forward(p, step, carry, reads), packing.run_backward(p, back, carry, reads)

    jaxpr = jax.make_jaxpr(recur)(off, jnp.zeros((count, columns)))
    return [e.primitive.name for e in jaxpr.jaxpr.eqns].count("while")


def test_windows_narrow_where_steps_are_heavy():
    assert loops(20, 16) == 2
    assert loops(20, 128) == 6
    assert loops(15, 128) == 2
