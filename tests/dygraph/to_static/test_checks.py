"""Conditions that a run has to meet, in branches and loops; and functions that converted code calls again."""

from __future__ import annotations

import numpy as np
import pytest

from fluidjax import dygraph, layers
from tests.dygraph.to_static.helpers import check

LOW, MIDDLE, HIGH = (np.full(2, v, "float32") for v in (-1.0, 2.0, 6.0))


def asserts_in_a_branch(x):
    if layers.mean(x) > 0:
        assert layers.mean(x) > 5, "too small"
        x = x + 1
    return x - 1


def asserts_in_a_loop(x):
    i = layers.fill_constant([1], "int32", 0)
    while i < 3:
        if layers.mean(x) > 3:
            assert layers.mean(x) > 5, "between"
        x = x + 1
        i = i + 1
    return x


@pytest.mark.parametrize("function", [asserts_in_a_branch, asserts_in_a_loop])
@pytest.mark.parametrize("x", [LOW, HIGH])
def test_an_assert_that_holds_or_is_not_reached(function, x) -> None:
    check(function, x)


@pytest.mark.parametrize("function, message", [(asserts_in_a_branch, "too small"), (asserts_in_a_loop, "between")])
def test_an_assert_that_a_run_gets_to(function, message: str) -> None:
    with dygraph.guard(), pytest.raises(AssertionError, match=message):
        dygraph.declarative(function)(dygraph.to_variable(MIDDLE))


def decides_by_several(x):
    if layers.mean(x) > 0:
        if x > 3:
            x = x + 1
    else:
        x = x - 1
    return x


def test_a_condition_of_several_elements_matters_where_a_run_gets_to_it() -> None:
    check(decides_by_several, LOW)
    with dygraph.guard(), pytest.raises(ValueError, match="expected: one element"):
        dygraph.declarative(decides_by_several)(dygraph.to_variable(MIDDLE))


def again(x, n):
    return x if n == 0 else again(x + n, n - 1)


def calls_itself(x):
    return again(x, 3)


def test_a_function_of_the_module_that_calls_itself() -> None:
    check(calls_itself, LOW)


def leaves_by_a_variable(x, n):
    a = layers.fill_constant([1], "int32", 0)
    for _ in range(n):
        if a <= 2:
            x = x + 1
            a = a + 1
        else:
            x = x + 10
            break
        x = x * 2
    return x


@pytest.mark.parametrize("rounds", [2, 4, 6])
def test_rounds_of_python_after_a_break_that_a_variable_decides(rounds: int) -> None:
    check(leaves_by_a_variable, LOW, rounds)


def counts_beside_a_variable(x):
    a = 1
    while x < 10 and (a < 4 or a > 0) or a < -1:
        x = x + 1
        a = a + 1
    return x


def test_a_counter_that_cannot_end_the_loop_alone() -> None:
    check(counts_beside_a_variable, np.zeros(1, "float32"))
