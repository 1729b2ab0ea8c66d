"""Static and eager mode compute the same numbers: each recorded op in a program and through the tracer."""

import pytest

import lowering
from tests.golden.backend import executed
from tests.golden.eager_ops import traceable, traced
from tests.golden.oprunner import judged_outputs
from tests.golden.recordings import DATA, OpCase, op_cases
from tests.golden.values import compare

# Rounding: sums of up to some thousands of numbers, added in another order.
ROUNDING = {"float32": 2e-6, "float64": 4e-15}
SHARE = 3  # every third op: one run of each kind for it takes a fifth of a second


@pytest.fixture(autouse=True)
def own_copy(monkeypatch):
    monkeypatch.setenv("FLUIDJAX_GOLDEN", str(DATA))


def sampled() -> list[str]:
    stems = sorted(p.stem for p in (DATA / "ops").glob("*.npz"))
    return [t for t in stems if lowering.has_op(t)][::SHARE]


def case_of(op_type: str) -> OpCase | None:
    """The op's last case that eager mode has a run of, one with gradients if there is one."""
    cases = [c for c in op_cases(op_type) if traceable(c)]
    return next(reversed([c for c in cases if c.is_grad] or cases), None)


def test_most_ops_have_a_case(own_copy):
    cases = [case_of(t) for t in sampled()]
    assert sum(c is not None for c in cases) > 60
    assert sum(c is not None and c.is_grad for c in cases) > 40


@pytest.mark.parametrize("op_type", sampled())
def test_a_program_and_eager_mode_agree_to_rounding(op_type):
    case = case_of(op_type)
    if case is None:
        return
    wanted = [v.name for v in (*judged_outputs(case), *case.variables("grads"))]
    values = {v.name: v.value for v in case.variables("inputs") if v.value is not None}
    program, eager = executed(case.program, values, wanted), traced(case, wanted)
    assert wanted and set(program) == set(wanted)
    for name in wanted:
        array = program[name].array
        rtol = ROUNDING.get(array.dtype.name) if array is not None else None
        # ``gradient()`` is an array: it has no lengths of sequences.
        lods = [[]] if name.endswith("@GRAD") else []
        verdict = compare(eager.get(name), program[name], rtol, lods)
        assert not verdict.problem, f"{case.id}, {name}: {verdict.problem}"
