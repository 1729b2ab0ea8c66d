"""Ops run alone: what the user has just set is fed to them, and all else they find in the scope."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidjax import core
from fluidjax.op import Operator

PLACE = core.CPUPlace()


@pytest.fixture
def scope() -> core.Scope:
    return core.Scope()


def put(scope: core.Scope, name: str, value: Any) -> core.LoDTensor:
    tensor = scope.var(name).get_tensor()
    if value is not None:
        tensor.set(np.asarray(value), PLACE)
    return tensor


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_each_run_sees_what_was_set_before_it(scope, dtype):
    x, out = put(scope, "X", np.ones(3, dtype)), put(scope, "Out", None)
    double = Operator("scale", X="X", Out="Out", scale=2.0)
    for value in (np.arange(3), np.arange(3) + 5, np.ones((2, 2)), np.zeros((1, 4))):
        x.set(value.astype(dtype), PLACE)
        double.run(scope, PLACE)
        assert np.array(out).dtype == dtype
        np.testing.assert_array_equal(np.array(out), 2 * value)
        np.testing.assert_array_equal(np.array(x), value)


def test_an_element_at_a_time_as_differences_are_taken(scope):
    x, out = put(scope, "X", np.arange(4.0)), put(scope, "Out", None)
    square = Operator("square", X="X", Out="Out")
    found = []
    for at in range(4):
        before = x._get_double_element(at)
        sums = []
        for step in (1e-3, -1e-3):
            x._set_double_element(at, before + step)
            square.run(scope, PLACE)
            sums.append(np.array(out).sum())
        x._set_double_element(at, before)
        found.append((sums[0] - sums[1]) / 2e-3)
    np.testing.assert_allclose(found, [0, 2, 4, 6], atol=1e-9)


def test_what_another_op_left_is_read_where_it_is(scope):
    for name, value in (("X", [1.0, -2.0]), ("Y", None), ("Z", None)):
        put(scope, name, value)
    first, second = Operator("relu", X="X", Out="Y"), Operator("scale", X="Y", Out="Z", scale=3.0)
    for value in ([1.0, -2.0], [-1.0, 4.0]):
        scope.find_var("X").get_tensor().set(np.array(value), PLACE)
        first.run(scope, PLACE)
        second.run(scope, PLACE)
        np.testing.assert_array_equal(np.array(scope.find_var("Z").get_tensor()), 3 * np.maximum(value, 0))
    put(scope, "Y", [7.0])
    second.run(scope, PLACE)
    np.testing.assert_array_equal(np.array(scope.find_var("Z").get_tensor()), [21])


def test_an_op_may_write_what_it_reads(scope):
    param = put(scope, "Param", np.ones(2, "float32"))
    put(scope, "Grad", np.array([1, 2], "float32"))
    put(scope, "LearningRate", np.array([0.5], "float32"))
    step = Operator("sgd", Param="Param", Grad="Grad", LearningRate="LearningRate", ParamOut="Param")
    for expected in ([0.5, 0], [0, -1], [-0.5, -2]):
        step.run(scope, PLACE)
        np.testing.assert_array_equal(np.array(param), np.float32(expected))


def test_sequences_keep_their_lengths(scope):
    x, out = put(scope, "X", np.arange(6.0).reshape(3, 2)), put(scope, "Out", None)
    reverse = Operator("sequence_reverse", X="X", Y="Out")
    for lengths, order in (([2, 1], [1, 0, 2]), ([1, 2], [0, 2, 1]), ([3], [2, 1, 0])):
        x.set_recursive_sequence_lengths([lengths])
        reverse.run(scope, PLACE)
        assert out.recursive_sequence_lengths() == [lengths]
        np.testing.assert_array_equal(np.array(out), np.arange(6.0).reshape(3, 2)[order])


def test_an_input_without_a_value_is_named(scope):
    put(scope, "X", None), put(scope, "Out", None)
    with pytest.raises(core.EnforceNotMet, match="X"):
        Operator("relu", X="X", Out="Out").run(scope, PLACE)
