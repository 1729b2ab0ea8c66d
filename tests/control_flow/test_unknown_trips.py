"""Loops whose number of steps the host cannot follow: it sees that at once, however many steps it could take."""

from __future__ import annotations

import numpy as np

import fluidjax as fluid
from fluidjax import layers
from lowering.loops import save_plan


def test_an_and_of_two_unknown_conditions_is_not_followed(monkeypatch) -> None:
    steps = []
    step = save_plan._Host.step
    monkeypatch.setattr(save_plan._Host, "step", lambda self: (steps.append(1), step(self))[1])
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        n, m = fluid.data("n", [1], "int64"), fluid.data("m", [1], "int64")
        i = layers.fill_constant([1], "int64", 0)

        def goes_on(i):
            return layers.logical_and(i < n, i < m)

        (last,) = layers.while_loop(goes_on, lambda i: [i + 1], [i])
    feed = {"n": np.array([7], "int64"), "m": np.array([9], "int64")}
    assert fluid.Executor(fluid.CPUPlace()).run(main, feed=feed, fetch_list=[last])[0].tolist() == [7]
    assert len(steps) < 10


def test_an_and_with_a_counter_is_followed_to_its_end(monkeypatch) -> None:
    steps = []
    step = save_plan._Host.step
    monkeypatch.setattr(save_plan._Host, "step", lambda self: (steps.append(1), step(self))[1])
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        n = fluid.data("n", [1], "int64")
        i, bound = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 20)

        def goes_on(i):
            return layers.logical_and(i < n, i < bound)

        (last,) = layers.while_loop(goes_on, lambda i: [i + 1], [i])
    found = fluid.Executor(fluid.CPUPlace()).run(main, feed={"n": np.array([7], "int64")}, fetch_list=[last])
    assert found[0].tolist() == [7]
    assert len(steps) == 20
