"""The operator recordings kept with the tests; the command ``python -m tests.golden.ops`` runs whole folders."""

import pytest

import lowering
from tests.golden import known
from tests.golden.backend import BACKENDS
from tests.golden.oprunner import run_case
from tests.golden.recordings import DATA, op_cases, op_types


@pytest.fixture(autouse=True)
def own_copy(monkeypatch):
    monkeypatch.setenv("FLUIDJAX_GOLDEN", str(DATA))


def recorded() -> list[str]:
    """The registered operators that have recordings in the copy kept here."""
    stems = sorted(p.stem for p in (DATA / "ops").glob("*.npz"))
    return [t for t in stems if lowering.has_op(t)]


def test_there_are_recordings():
    assert len(recorded()) > 100
    assert set(recorded()) <= set(op_types())


@pytest.mark.parametrize("backend", ["executor", "interpret"])
@pytest.mark.parametrize("op_type", recorded())
def test_recordings_of(op_type, backend):
    problems = []
    for case in op_cases(op_type):
        outcome = run_case(case, BACKENDS[backend])
        if case.id not in known.OPS and not outcome.passed:
            problems.append(f"{case.id}: {outcome.verdict.problem}\n{outcome.trace}")
    assert not problems, "\n".join(problems)


def test_known_cases_are_still_not_reproduced():
    """A case that passes has no business in the list; the ones that the reference does not repeat may pass or not."""
    stale = []
    for op_type in ("softmax_with_cross_entropy",):
        for case in op_cases(op_type):
            if case.id in known.OPS and run_case(case, BACKENDS["interpret"]).passed:
                stale.append(case.id)
    assert not stale
    assert any(c.id in known.OPS for c in op_cases("softmax_with_cross_entropy"))
