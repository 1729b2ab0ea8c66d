"""Segments, offsets and packed order: known offsets, traced ones, and the forms for large inputs give the same."""

from __future__ import annotations

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
    """What the order makes of row numbers, in and out of loops, and of ranks."""
    off, rows = offsets_of(lengths), sum(lengths)

    def make(off):
        numbers = jnp.arange(capacity)[:, None]
        p = packing.pack(LoDArray(numbers, (off,)), off, reverse=reverse)
        read, start = p.packed(numbers), jnp.zeros((p.n, 1))
        forth = packing.run_forward(p, lambda carry, row, alive: (carry, (row,)), start, read)[0]
        over = packing.run_forward(p, lambda carry, row, alive: (carry, (-row,)), start, read, overwrite=True)[0]
        back = packing.run_backward(p, masked, start, read + 1)[1]
        return {
            "read": p.batched(read),
            "written": p.unpacked(p.unbatched(jnp.arange(rows))),
            "forth": p.unpacked(forth),
            "overwritten": p.unpacked(over),
            "back": p.of_backward(back),
            "sizes": p.sizes,
            "ranks": p.unsorted(p.sorted(jnp.arange(p.n))),
            "ranked": p.sorted(jnp.asarray(lengths)),
        }

    found = jax.jit(make)(off) if traced else make(off)
    return {name: np.asarray(value).reshape(-1) for name, value in found.items()}


def masked(carry, rows, alive):
    return carry, jnp.where(packing.alive_rows(rows.shape[0], alive), rows, 0)


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_packed_order(lengths, reverse, large, monkeypatch):
    if large:
        monkeypatch.setattr(packing, "DENSE_PAIRS", 0)
        monkeypatch.setattr(sequence, "DENSE_PAIRS", 0)
    rows = sum(lengths)
    want, own = in_order(lengths, reverse), list(range(rows))
    for traced in (False, True):
        p = packed(lengths, rows + 3, reverse, traced)
        assert p["read"][:rows].tolist() == want
        assert [want[i] for i in p["written"][:rows]] == own
        assert p["sizes"].tolist() == p["ranked"].tolist() == sorted(lengths, reverse=True)
        assert p["ranks"].tolist() == list(range(len(lengths)))
        assert p["back"].tolist() == [i + 1 for i in own] + [0] * 3
        if rows:
            assert p["forth"].tolist() == [*own, 0, 0, 0]
            assert p["overwritten"].tolist() == [-i for i in own] + [0] * 3


def test_one_sequence_is_neither_sorted_nor_gathered():
    off = jnp.asarray([0, 3], jnp.int32)

    def recur(off, x):
        p = packing.pack(LoDArray(x, (off,)), off)
        step = lambda carry, rows, alive: (carry + rows, (carry,))  # noqa: E731
        return p.unpacked(packing.run_forward(p, step, jnp.zeros((1, 2)), p.packed(x))[0])

    x = jnp.arange(8.0).reshape(4, 2)
    assert recur(off, x).tolist() == [[0, 0], [0, 1], [2, 4], [0, 0]]
    text = str(jax.make_jaxpr(recur)(off, x))
    assert "while" in text
    assert not any(name in text for name in ("gather", "sort", "scatter", "reduce"))


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
