"""Loops whose number of steps the host cannot follow: it sees that at once, however many steps it could take."""

from __future__ import annotations

import numpy as np
import pytest

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


# --- the room that such loops turn out to need ------------------------------------------------------------------------


def _powers(compare):
    """sum(w ** 0 ... w ** (n - 1)) with n fed, and its gradient; ``compare(i, n)`` is the condition."""
    i, n = layers.fill_constant([1], "int64", 0), fluid.data("n", [1], "int64")
    w = layers.create_parameter([1], "float32", default_initializer=fluid.initializer.Constant(0.5))
    one = layers.fill_constant([1], "float32", 1.0)
    _, _, total = layers.while_loop(
        lambda i, *_: compare(i, n), lambda i, power, total: [i + 1, power * w, total + power], [i, one, one * 0.0]
    )
    return [total, *fluid.gradients([total], [w])]


def _filled(compare):
    """An array of n elements, written one by one, and its length."""
    i, n = layers.fill_constant([1], "int64", 0), fluid.data("n", [1], "int64")
    array = layers.create_array("float32")
    loop = layers.While(compare(i, n))
    with loop.block():
        layers.array_write(layers.cast(i, "float32"), i, array)
        layers.increment(i)
        layers.assign(compare(i, n), loop.cond_var)
    return [layers.array_length(array), layers.array_read(array, i - 1)]


CONDITIONS = {
    "less_than": lambda i, n: i < n,
    "greater_than": lambda i, n: n > i,
    "and": lambda i, n: layers.logical_and(i < n, i < n),
}


@pytest.mark.parametrize(
    "network, condition, compilations", [(_powers, "less_than", 2), (_filled, "greater_than", 2), (_filled, "and", 6)]
)
def test_a_loop_gets_at_once_the_room_that_it_is_seen_to_need(network, condition, compilations) -> None:
    """16 steps are compiled first, then the bucket of 300; where nothing can be foreseen, 32, 64 ... 512."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        fetches = network(CONDITIONS[condition])
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(startup)
    traces = []
    for n in (5, 300, 310, 40):
        found = [v.item() for v in exe.run(main, feed={"n": np.array([n])}, fetch_list=fetches)]
        expected = [n, n - 1] if network is _filled else [2 - 0.5 ** (n - 1), 4 - (n + 1) * 0.5 ** (n - 2)]
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        traces.append(sum(p.compilations for p in main.__dict__["_prepared_cache"].values()))
    assert traces == [1, *[compilations] * 3]
