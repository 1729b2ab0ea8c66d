"""Every case of the corpus, held against its reference, ``jax.vjp``, finite differences, and interpret mode."""

import pytest

import lowering
from fluidjax import testing
from tests.spec import op_families

CASES = testing.table()
# Families whose every differentiable op has to have a case here.
COVERED = ("math", "elementwise", "activation", "reduction", "tensor", "compare_logical", "nn", "loss", "embedding")
# Random, or without numbers to differentiate: shuffle_batch permutes by a seed (its own test).
ELSEWHERE = {"shuffle_batch"}


def differentiable(case):
    return lowering.get_op(case.op).differentiable


@pytest.mark.parametrize("case", [c for c in CASES if c.reference], ids=lambda c: c.name)
def test_forward(case, rng):
    testing.check_forward(case, rng)


@pytest.mark.parametrize("case", [c for c in CASES if differentiable(c)], ids=lambda c: c.name)
def test_gradient(case, rng):
    testing.check_gradient(case, rng)


@pytest.mark.parametrize("case", [c for c in CASES if c.twice], ids=lambda c: c.name)
def test_double_gradient(case, rng):
    testing.check_double_gradient(case, rng)


@pytest.mark.parametrize("case", [c for c in CASES if not c.label], ids=lambda c: c.name)
def test_float32(case, rng):
    testing.check_float32(case, rng)


@pytest.mark.parametrize("case", [c for c in CASES if not c.label], ids=lambda c: c.name)
def test_jit_equals_interpret(case, rng):
    testing.check_modes(case, rng)


def test_every_differentiable_op_has_a_case():
    families = op_families()
    tested = {c.op for c in CASES} | ELSEWHERE
    missing = [
        op
        for op in lowering.registered_ops()
        if families.get(op) in COVERED and lowering.get_op(op).differentiable and op not in tested
    ]
    assert not missing


def test_names_are_unique():
    names = [c.name for c in CASES]
    assert len(names) == len(set(names))
