"""Runs that ask for what the last run of their program asked for, and runs that only look alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers
from fluidjax.execution.runs import asked


class Doubling:
    """Two numbers that a program computes from what is fed."""

    def __init__(self) -> None:
        self.main = fluid.Program()
        with fluid.program_guard(self.main), fluid.unique_name.guard():
            self.x = fluid.data("x", [2], "float32")
            self.y = fluid.data("y", [2], "float32")
            self.double = layers.scale(self.x, 2.0)
            self.triple = layers.scale(self.y, 3.0)
        self.executor, self.scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()

    def run(self, feed: Any, fetches: Any) -> list[Any]:
        return [v.tolist() for v in self.executor.run(self.main, feed=feed, fetch_list=fetches, scope=self.scope)]

    def known(self, feed: Any, fetches: Any) -> bool:
        return asked.again(self.main, self.executor._device, feed, fetches) is not None


@pytest.fixture
def doubling() -> Doubling:
    return Doubling()


ONES = {"x": np.ones(2, np.float32), "y": np.ones(2, np.float32)}


def test_the_same_request_is_looked_up_once(doubling: Doubling) -> None:
    assert doubling.run(ONES, [doubling.double]) == [[2, 2]]
    assert doubling.known(dict(reversed(ONES.items())), [doubling.double])
    assert doubling.run({"y": ONES["y"], "x": 5 * ONES["x"]}, [doubling.double]) == [[10, 10]]


def test_a_list_that_was_changed_in_place_is_another_request(doubling: Doubling) -> None:
    fetches = [doubling.double]
    doubling.run(ONES, fetches)
    fetches[0] = doubling.triple
    assert doubling.run(ONES, fetches) == [[3, 3]]
    fetches.append(doubling.double)
    assert doubling.run(ONES, fetches) == [[3, 3], [2, 2]]
    assert doubling.run(ONES, fetches[1:]) == [[2, 2]]


def test_variables_as_names_of_feeds_are_no_names(doubling: Doubling) -> None:
    doubling.run(ONES, [doubling.double])
    ops = len(doubling.main.global_block().ops)
    assert doubling.run({doubling.x: 4 * ONES["x"], doubling.y: ONES["y"]}, [doubling.double]) == [[8, 8]]
    assert len(doubling.main.global_block().ops) == ops


def test_another_program_flag_or_feed_is_another_request(doubling: Doubling) -> None:
    doubling.run(ONES, [doubling.double])
    assert not doubling.known({"x": ONES["x"]}, [doubling.double])
    fluid.set_flags({"FLAGS_check_values": False})
    try:
        assert not doubling.known(ONES, [doubling.double])
    finally:
        fluid.set_flags({"FLAGS_check_values": True})
    assert doubling.known(ONES, [doubling.double])
    doubling.main.random_seed = 3
    assert not doubling.known(ONES, [doubling.double])
    doubling.main.global_block().ops[0]._set_attr("scale", 7.0)
    assert doubling.run(ONES, [doubling.double]) == [[7, 7]]


def test_nothing_fed_and_nothing_fetched_is_a_request_like_others() -> None:
    main, scope, executor = fluid.Program(), fluid.Scope(), fluid.Executor(fluid.CPUPlace())
    with fluid.program_guard(main), fluid.unique_name.guard():
        count = main.global_block().create_var(name="count", shape=[1], dtype="float32", persistable=True)
        layers.increment(count, 1.0)
    scope.var("count").get_tensor().set(np.zeros(1, np.float32), fluid.CPUPlace())
    executor.run(main, scope=scope)
    assert asked.again(main, executor._device, {}, []) is not None
    with fluid.program_guard(main):  # the default program is known, too
        executor.run(scope=scope)
        assert executor.run(fetch_list=[count], scope=scope)[0].tolist() == [3]
    executor.run(main, scope=scope)
    assert np.asarray(scope.find_var("count").get_tensor()).tolist() == [4]
