"""Comparing random programs with Paddle: what counts as a difference, and whose fault it is."""

from __future__ import annotations

import os
import random
from typing import Any

import numpy as np
import pytest

from tests.golden.beside import KINDS, Case, Paddle, apart, judge, wrong_there

PYTHON = os.environ.get("FLUIDJAX_PADDLE_PYTHON")
ONES = np.ones((2, 2), np.float32)


def found(**values: Any) -> dict[str, np.ndarray]:
    return {name: np.asarray(value, np.float32) for name, value in values.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_a_program_of_each_kind_runs_here(kind):
    case = KINDS[kind](random.Random(3))
    results = case.here()
    assert results["loss"].size == 1 and results.keys() <= {"loss", *case.wanted}
    assert apart(results, results) == ("", "")


def test_what_differs():
    theirs = found(loss=3.0, w=ONES)
    assert apart(found(loss=3.0, w=ONES * 1.0001), theirs) == ("", "")
    assert apart(found(loss=3.0, w=ONES * 1.01), theirs)[0] == "w"
    assert apart(found(loss=3.0, w=ONES[0]), theirs)[1] == "w: float32 (2,), and float32 (2, 2)"
    assert apart(found(loss=np.nan, w=ONES), theirs)[0] == "loss"
    assert "gradients of" in apart(found(loss=3.0), theirs)[1]


def test_gradients_that_cancel_out_are_rounding_alone():
    theirs = found(loss=3.0, w=ONES, b=1e-7)
    assert apart(found(loss=3.0, w=ONES, b=0.0), theirs) == ("", "")
    assert apart(found(loss=3.0, w=ONES, b=1e-4), theirs)[0] == "b"


def test_a_loop_that_runs_no_time_computes_no_gradient():
    assert apart(found(loss=3.0, w=ONES * 0), found(loss=3.0, w=[])) == ("", "")
    assert apart(found(loss=3.0, w=ONES), found(loss=3.0, w=[]))[0] == "w"


class Squares:
    """Paddle, were its program the sum of the squares of ``w``."""

    def of(self, case: Case) -> dict[str, np.ndarray]:
        return found(loss=(case.held["w"] ** 2).sum())


def test_differences_of_the_loss_tell_whose_gradient_is_wrong():
    case = Case(None, "loss", {}, {"w": ONES}, ["w"], "")
    right, wrong = found(loss=4.0, w=2 * ONES), found(loss=4.0, w=3 * ONES)
    paddle: Any = Squares()
    assert wrong_there(case, paddle, "w", right, wrong)
    assert not wrong_there(case, paddle, "w", wrong, right)
    assert not wrong_there(case, paddle, "loss", right, wrong)


@pytest.mark.skipif(not PYTHON, reason="FLUIDJAX_PADDLE_PYTHON names no Python with paddlepaddle 1.8.5")
@pytest.mark.parametrize("kind", KINDS)
def test_programs_are_those_of_paddle(kind):
    with Paddle(PYTHON or "") as paddle:
        verdicts = [judge(KINDS[kind](random.Random(seed)), paddle)[0] for seed in range(40, 44)]
    assert "equal" in verdicts and not {"differs", "fails"} & set(verdicts)
