"""The operator recordings kept with the tests; the command ``python -m tests.golden.ops`` runs whole folders."""

from pathlib import Path

import pytest

import lowering
from tests.golden import known
from tests.golden.backend import BACKENDS
from tests.golden.oprunner import run_case
from tests.golden.recordings import DATA, OpCase, op_cases, op_types


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


def problems_of(cases: list[OpCase], backend: str) -> str:
    """What is wrong with some cases, one by one."""
    outcomes = [run_case(case, BACKENDS[backend]) for case in cases if case.id not in known.OPS]
    return "\n".join(f"{o.case.id}: {o.verdict.problem}\n{o.trace}" for o in outcomes if not o.passed)


@pytest.mark.parametrize("op_type", recorded())
def test_a_recording_op_by_op(op_type):
    assert not problems_of(list(op_cases(op_type))[-1:], "interpret")


def test_known_cases_are_still_not_reproduced():
    """A case that passes has no business in the list; the ones that the reference does not repeat may pass or not."""
    stale = []
    for op_type in ("softmax_with_cross_entropy",):
        for case in op_cases(op_type):
            if case.id in known.OPS and run_case(case, BACKENDS["interpret"]).passed:
                stale.append(case.id)
    assert not stale
    assert any(c.id in known.OPS for c in op_cases("softmax_with_cross_entropy"))


def test_known_cases_are_listed_for_users():
    text = " ".join((Path(__file__).parents[2] / "docs" / "deviations.md").read_text(encoding="utf-8").split())
    assert [case for case in known.OPS if case not in text] == []
