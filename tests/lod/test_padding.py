"""Padding rows change nothing: with two fills and two capacities, the valid rows of outputs and gradients are equal."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import lowering
from lowering.values import LoDArray
from tests.lod.cases import CASES
from tests.lod.property import (
    FILLS,
    cotangents,
    draw,
    gradient_values,
    padding_rows,
    run,
    valid_rows,
    values_of,
)

pytestmark = pytest.mark.usefixtures("compiled_quickly")

COUNT, TOTAL = 5, 11
PADDINGS = [(None, "first"), (16, "first"), (16, "last"), (24, "last")]
TRIALS = 2
ROWLESS = {"sequence_pool", "sequence_softmax", "lstm", "linear_chain_crf", "warpctc", "fused_embedding_seq_pool"}


def close(ours, theirs, where):
    """Equal but for the order of sums."""
    if isinstance(ours, list):
        for a, b in zip(ours, theirs, strict=True):
            close(a, b, where)
        return
    if ours is None:
        assert theirs is None, where
        return
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-11, err_msg=where)


def check_forward_padding(outs, where):
    """I1: padding rows are finite, and copies of a valid row where there is one."""
    for slot, out in outs.items():
        rows = padding_rows(out)
        if rows is None or not len(rows) or slot.startswith("Batch"):
            continue
        assert np.all(np.isfinite(rows)), f"{where} {slot}: padding is not finite"
        valid = valid_rows(out)
        if len(valid):
            assert any(np.array_equal(rows[0], v) for v in valid), f"{where} {slot}: padding is no copy"


def check_gradient_padding(grads, where):
    """I2: padding rows of gradients are exactly zero."""
    for slot, grad in grads.items():
        for value in grad if isinstance(grad, list) else [grad]:
            rows = padding_rows(value)
            assert rows is None or not rows.any(), f"{where} {slot}: padding of the gradient is not zero"


def compare(case, trial, rng):
    """Run forward and gradient op in each padding and hold them against the exact run."""
    numbers, wanted, wanted_grads = {}, None, None
    gradient = lowering.get_op(case.op).gradient
    for capacity, fill in PADDINGS:
        where = f"{case.name} capacity {capacity} fill {fill} {trial.offsets}"
        ins = values_of(case, trial, capacity, fill)
        outs = run(case.op, case.attrs, ins)
        check_forward_padding(outs, where)
        got = {slot: valid_rows(v) for slot, v in outs.items()}
        wanted = wanted or got
        for slot in got.keys() - {"XShape"}:  # which holds the capacity
            close(got[slot], wanted[slot], f"{where} {slot}")
        if gradient is None:
            continue
        read = gradient_values(case, ins, outs, cotangents(outs, numbers, rng))
        grads = run(gradient.type, case.attrs, read)
        check_gradient_padding(grads, where)
        got = {slot: valid_rows(v) for slot, v in grads.items()}
        wanted_grads = wanted_grads or got
        for slot in got:
            close(got[slot], wanted_grads[slot], f"{where} {slot}")


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_padding_changes_nothing(case, rng):
    assert FILLS
    with jax.enable_x64(True):
        for _ in range(TRIALS):
            compare(case, draw(case, rng, COUNT, TOTAL), rng)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_an_empty_batch_is_finite_and_moves_nothing(case, rng):
    """All sequences empty, all rows padding: outputs are finite, gradients zero."""
    with jax.enable_x64(True):
        trial = draw(case, rng, COUNT, TOTAL)
        ins = values_of(case, trial, 16, "first")
        ins = {slot: _emptied(v) for slot, v in ins.items()}
        outs = run(case.op, case.attrs, ins)
        check_forward_padding(outs, case.name)
        gradient = lowering.get_op(case.op).gradient
        if gradient is None:
            return
        read = gradient_values(case, ins, outs, cotangents(outs, {}, rng))
        grads = run(gradient.type, case.attrs, read)
        for spec in gradient.outputs:
            value = grads[spec.name]
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, LoDArray):
                    assert not np.asarray(one.data).any(), f"{case.name} {spec.name}"


@pytest.mark.parametrize("case", [c for c in CASES if c.op in ROWLESS], ids=lambda c: c.name)
def test_no_rows_at_all(case, rng):
    """Exact rows, and none of them: as many results as sequences, all finite."""
    with jax.enable_x64(True):
        trial = draw(case, rng, 3, 0)
        ins = values_of(case, trial, None, "first")
        outs = run(case.op, case.attrs, ins)
        gradient = lowering.get_op(case.op).gradient
        grads = run(gradient.type, case.attrs, gradient_values(case, ins, outs, cotangents(outs, {}, rng)))
        for slot, value in {**outs, **grads}.items():
            rows = valid_rows(value)
            assert rows is None or np.all(np.isfinite(rows)), f"{case.name} {slot}"


def _emptied(value):
    if isinstance(value, list):
        return [_emptied(v) for v in value]
    if not isinstance(value, LoDArray):
        return value
    return LoDArray(value.data, tuple(level * 0 for level in value.lod), value.nrows * 0)
