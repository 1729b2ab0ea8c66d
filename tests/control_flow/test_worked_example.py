"""The example by which ``lowering.loops`` explains itself is true: what a step saves is what the text says."""

from __future__ import annotations

import doctest

import lowering.loops


def test_the_worked_example_prints_what_a_step_saves() -> None:
    result = doctest.testmod(lowering.loops)
    assert result.attempted > 10 and not result.failed
