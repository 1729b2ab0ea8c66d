"""State that a program with a loop updates: in place where the loop is bounded, else safe from a repeated run."""

from __future__ import annotations

import numpy as np
import pytest

import fluidjax as fluid

layers = fluid.layers
SIZE = 2000  # large enough to have a buffer of its own


def counting_down(bounded: bool) -> tuple[fluid.Program, fluid.Program]:
    """w += 1; then steps from 0 (or what is fed) to 40, each written to an array."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        w = layers.create_global_var([SIZE], 0.0, "float32", persistable=True, name="w")
        layers.assign(w + 1.0, w)
        fed = fluid.data("start", [1], "int64")
        step = layers.fill_constant([1], "int64", 0) if bounded else layers.assign(fed)
        limit = layers.fill_constant([1], "int64", 40)
        array = layers.array_write(layers.scale(w, 1.0), step)
        running = layers.less_than(step, limit)
        with layers.While(running).block():
            value = layers.array_read(array, step)
            layers.increment(step)
            layers.array_write(value + 1.0, step, array)
            layers.less_than(step, limit, cond=running)
        layers.scale(layers.array_read(array, step), 1.0, name="last")
    return main, startup


@pytest.mark.parametrize("bounded", [True, False])
def test_a_loop_beside_an_update(bounded):
    main, startup = counting_down(bounded)
    last = next(n for n in main.global_block().vars if n.startswith("last"))
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    feed = {"start": np.zeros(1, np.int64)}
    with fluid.scope_guard(scope):
        exe.run(startup)
        pointers = []
        for run in range(3):
            (got,) = exe.run(main, feed=feed, fetch_list=[last])
            assert got[0] == 41 + run
            pointers.append(scope.find_var("w").get_tensor()._value.unsafe_buffer_pointer())
    assert np.array(scope.find_var("w").get_tensor())[-1] == 3
    assert (pointers[1] == pointers[2]) == bounded


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "with a parameter"])
def test_a_longer_loop_after_runs_that_change_nothing(beside):
    """It writes more than the array has room for, in a run like many before it; a fetched parameter changes nothing."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        weight = layers.create_parameter([1], "float32", default_initializer=fluid.initializer.Constant(1.0))
        count, limit = layers.fill_constant([1], "int64", 0), fluid.data("limit", [1], "int64")
        array = layers.array_write(layers.fill_constant([1], "float32", 0.0), count)
        running = layers.less_than(count, limit)
        with layers.While(running).block():
            value = layers.array_read(array, count)
            layers.increment(count)
            layers.array_write(value + weight, count, array)
            layers.less_than(count, limit, cond=running)
        last = layers.array_read(array, count)
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    with fluid.scope_guard(scope):
        exe.run(startup)
        for steps in [3] * 5 + [500]:
            got = exe.run(main, feed={"limit": np.array([steps])}, fetch_list=[last, weight] if beside else [last])
            assert got[0][0] == steps
