"""The gradient op of every ragged op is the derivative of its forward: central differences in float64."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import lowering
from lowering.dtypes import is_float
from lowering.program import GRAD
from tests.lod.cases import CASES
from tests.lod.property import Case, Dense, Rows, cotangents, draw, gradient_values, run, valid_rows, values_of

STEP = 1e-5
DIFFERENTIABLE = [c for c in CASES if lowering.get_op(c.op).gradient is not None]
WIDE = [
    # A hidden size divisible by 8, where Paddle 1.8.5's own float32 gradient is wrong.
    Case("lstm", {"Input": Rows((32,)), "Weight": Dense((8, 32)), "Bias": Dense((1, 56))}, ids="hidden-8"),
    # Enough sequences that the loop narrows its window as they end.
    Case(
        "lstm",
        {
            "Input": Rows((8,)),
            "Weight": Dense((2, 8)),
            "Bias": Dense((1, 14)),
            "H0": Dense(("n", 2)),
            "C0": Dense(("n", 2)),
        },
        ids="phases",
    ),  # fmt: skip
    Case("gru", {"Input": Rows((6,)), "Weight": Dense((2, 6)), "H0": Dense(("n", 2))}, ids="phases"),
    Case(
        "linear_chain_crf",
        {"Emission": Rows((3,)), "Transition": Dense((5, 3)), "Label": Rows((1,), below=3)},
        ids="phases",
    ),  # fmt: skip
]
COUNTS = {"phases": (19, 40)}


def loss_of(case, trial, grads_of_outputs):
    """The inner product of the outputs with fixed numbers."""
    outs = run(case.op, case.attrs, values_of(case, trial, None, "first"))
    return sum(float(np.sum(valid_rows(outs[slot]) * g)) for slot, g in grads_of_outputs.items())


def read_slots(case):
    """The output gradients that the grad op reads: the others do not take part."""
    gradient = lowering.get_op(case.op).gradient
    return [s.name[: -len(GRAD)] for s in gradient.inputs if s.name.endswith(GRAD)]


def analytic(case, trial, rng):
    ins = values_of(case, trial, None, "first")
    outs = run(case.op, case.attrs, ins)
    numbers = {}
    grads = cotangents({s: outs[s] for s in read_slots(case)}, numbers, rng)
    gradient = lowering.get_op(case.op).gradient
    results = run(gradient.type, case.attrs, gradient_values(case, ins, outs, grads))
    return {slot: valid_rows(v) for slot, v in results.items()}, numbers


def difference(case, trial, slot, direction, numbers):
    """Central difference of the loss along ``direction`` of one input."""
    values = []
    for sign in (1, -1):
        moved = {**trial.arrays, slot: trial.arrays[slot] + sign * STEP * direction}
        values.append(loss_of(case, type(trial)(trial.offsets, moved), numbers))
    return (values[0] - values[1]) / (2 * STEP)


@pytest.mark.parametrize("case", DIFFERENTIABLE + WIDE, ids=lambda c: c.name)
def test_gradient_is_the_derivative(case, rng):
    count, total = COUNTS.get(case.ids, (5, 11))
    with jax.enable_x64(True):
        trial = draw(case, rng, count, total)
        results, numbers = analytic(case, trial, rng)
        checked = 0
        for slot, array in trial.arrays.items():
            got = results.get(slot + GRAD)
            if got is None or not is_float(array.dtype):
                continue
            direction = rng.standard_normal(array.shape)
            parts = got if isinstance(got, list) else [got]
            ours = sum(float(np.sum(np.asarray(g).reshape(array.shape) * direction)) for g in parts)
            theirs = difference(case, trial, slot, direction, numbers)
            assert ours == pytest.approx(theirs, rel=2e-5, abs=1e-7), slot
            checked += 1
        assert checked, "no input has a gradient"
