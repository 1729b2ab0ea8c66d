"""A loop that ends early: a branch overwrites what the body knows, so its trips cannot be counted on the host."""

import contextlib
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers
from fluidjax.layers.control_flow import ConditionalBlock


def doubling(limit: float) -> tuple[fluid.Program, list[fluid.Variable]]:
    """y = x * 2^k, k at most 5, until the sum of y is above ``limit``; what to fetch: i, y, the gradient of mean(y)."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        x = fluid.data("x", [3], "float32")
        x.stop_gradient = False
        i = layers.fill_constant([1], "int64", 0)
        n = layers.fill_constant([1], "int64", 5)
        y = layers.assign(x)
        go = layers.less_than(i, n)
        loop = layers.While(go)
        with loop.block():
            stop = layers.fill_constant([1], "bool", False)
            layers.assign(layers.elementwise_mul(y, layers.fill_constant([3], "float32", 2.0)), y)
            over = layers.greater_than(layers.reduce_sum(y), layers.fill_constant([1], "float32", limit))
            with ConditionalBlock([over], is_scalar_condition=True).block():
                layers.assign(layers.fill_constant([1], "bool", True), stop)
            layers.increment(i, 1, in_place=True)
            layers.logical_and(layers.less_than(i, n), layers.logical_not(stop), out=go)
        (gradient,) = fluid.gradients([layers.mean(y)], [x])
    return main, [i, y, gradient]


@pytest.mark.parametrize("interpret", [False, True])
@pytest.mark.parametrize(("limit", "trips"), [(20.0, 3), (1e9, 5)])
def test_a_loop_ends_when_a_branch_says_so(limit: float, trips: int, interpret: bool) -> None:
    main, fetches = doubling(limit)
    x = np.asarray([1.0, 1.0, 2.0], "float32")
    mode: Any = fluid.interpret_mode() if interpret else contextlib.nullcontext()
    with mode, fluid.scope_guard(fluid.Scope()):
        i, y, gradient = fluid.Executor(fluid.CPUPlace()).run(main, feed={"x": x}, fetch_list=fetches)
    assert i.tolist() == [trips]
    assert y.tolist() == (x * 2.0**trips).tolist()
    np.testing.assert_allclose(gradient, np.full(3, 2.0**trips / 3), rtol=1e-6)
