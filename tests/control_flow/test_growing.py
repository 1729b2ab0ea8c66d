"""Loops whose values become longer in each step: few compilations, and Paddle's numbers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
import fluidjax.paddle as paddle
from fluidjax import layers
from fluidjax.execution.executables import background
from fluidjax.execution.runs.prepared import compilations
from tests.control_flow import generation

pytestmark = pytest.mark.usefixtures("compiled_quickly")

# What Paddle 1.8.5 found for 30 batches of prompts: 10 lengths, 3 numbers of sources, 5 to 59 steps.
RECORDED = json.loads((Path(__file__).parent / "data" / "generation.json").read_text())


def generated(cases: Sequence[Any], network: Callable[[], Any], extra: Any = None) -> int:
    """Generate from each recorded batch, compare with what was recorded; how often that compiled."""
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        wanted = network()
    executor = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(scope):
        executor.run(startup)
        for p in main.all_parameters():
            scope.var(p.name).get_tensor().set(generation.parameter(p.name, p.shape), fluid.CPUPlace())
        for case in cases:
            feed = generation.prompts(case["sources"], case["length"], case["end"]) | (extra or {})
            words, scores, steps = executor.run(main, feed=feed, fetch_list=wanted)
            assert steps.tolist() == [case["steps"]]
            assert words.shape == (2 * case["sources"], 1 + case["steps"])
            assert words[0].tolist() == case["best"]
            np.testing.assert_allclose(scores[:, 0], case["scores"], rtol=2e-5)
    return compilations(main)


@pytest.fixture
def beside() -> Iterator[None]:
    fluid.set_flags({"FLAGS_background_compilation": True})
    yield
    background.wait()
    fluid.set_flags({"FLAGS_background_compilation": False})


@pytest.mark.usefixtures("beside")
def test_prompts_of_ten_lengths_in_three_batch_sizes_compile_a_handful_of_times() -> None:
    assert len({(case["sources"], case["length"]) for case in RECORDED}) == 30
    assert {case["steps"] for case in RECORDED} >= {5, 59}
    assert generated(RECORDED, generation.generator) <= 5  # one for each batch size, and closer rooms beside them


def test_prompts_compile_a_handful_of_times_where_sizes_alone_decide() -> None:
    cases = [case for case in reversed(RECORDED) if case["sources"] < 5]
    assert generated(cases, generation.generator) <= 4  # exactly at first, then with room; and for the other batch size


def test_a_loop_of_unknown_length_gets_more_room_when_it_needs_it() -> None:
    def limit() -> Any:
        return layers.data("limit", [1], dtype="int64", append_batch_size=False)

    cases = [case for case in RECORDED if case["sources"] == 2][:4]  # 5, 11, 17, 23 steps; room for 16 at first
    # Compiled exactly, with room for longer prompts, for more steps, for still longer prompts.
    assert generated(cases, lambda: generation.generator(limit), {"limit": np.array([60])}) <= 4


def unchanged(x: Any) -> Any:
    return x


def grown(after: Any = unchanged, inside: Any = unchanged, steps: int = 4) -> tuple[fluid.Program, Any]:
    """``inside`` of x [2, n] in each step, which puts twice the first column to its end; then ``after`` of it."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        x = layers.assign(fluid.data("x", [2, None], "float32"))
        first = fluid.data("first", [2, 1], "float32")
        i, n = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", steps)
        goes_on = layers.less_than(i, n)
        with layers.While(goes_on).block():
            layers.assign(layers.concat([inside(x), first * 2], axis=1), x)
            layers.increment(i)
            layers.less_than(i, n, cond=goes_on)
        return main, after(x)


def expected(x: np.ndarray, steps: int = 4) -> np.ndarray:
    return np.concatenate([x, np.tile(2 * x[:, :1], (1, steps))], axis=1)


def softmax(x: np.ndarray) -> np.ndarray:
    return np.exp(x) / np.exp(x).sum(1, keepdims=True)


@pytest.mark.parametrize(
    ("after", "meant"),
    [
        (unchanged, unchanged),
        (lambda x: layers.reduce_sum(layers.exp(x), dim=[1]), lambda x: np.exp(x).sum(1)),
        (lambda x: layers.concat([x, x[:, :1]], axis=1), lambda x: np.concatenate([x, x[:, :1]], 1)),
        (lambda x: layers.softmax(layers.concat([x[:, :1], x], axis=1)), lambda x: softmax(np.append(x[:, :1], x, 1))),
        (lambda x: layers.cumsum(x, axis=1), lambda x: np.cumsum(x, 1)),  # has no rule for room
    ],
)
def test_what_has_grown_is_used_after_the_loop(after: Any, meant: Any) -> None:
    main, wanted = grown(after)
    executor = fluid.Executor(fluid.CPUPlace())
    for n in (3, 5, 6):
        x = np.random.RandomState(n).normal(size=(2, n)).astype("float32")
        (found,) = executor.run(main, feed={"x": x, "first": x[:, :1]}, fetch_list=[wanted])
        np.testing.assert_allclose(found, meant(expected(x)), rtol=1e-5)


def test_an_op_without_a_rule_for_room_makes_the_loop_run_as_it_is() -> None:
    main, wanted = grown(inside=lambda x: paddle.roll(paddle.roll(x, 1, dims=1), -1, dims=1))
    executor = fluid.Executor(fluid.CPUPlace())
    for n in (3, 5, 6):
        x = np.random.RandomState(n).normal(size=(2, n)).astype("float32")
        (found,) = executor.run(main, feed={"x": x, "first": x[:, :1]}, fetch_list=[wanted])
        np.testing.assert_array_equal(found, expected(x))
    assert compilations(main) == 3  # unrolled, for each size


def test_a_loop_that_may_take_many_steps_gets_room_for_some_at_first() -> None:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        x = layers.assign(fluid.data("x", [2, None], "float32"))
        last = fluid.data("last", [1], "int64")
        i, n = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 4000)
        goes_on = layers.less_than(i, n)
        with layers.While(goes_on).block():
            layers.assign(layers.concat([x, layers.reduce_sum(x, dim=[1], keep_dim=True) * 0.5], axis=1), x)
            layers.increment(i)
            layers.logical_and(layers.less_than(i, n), layers.less_than(i, last), out=goes_on)
    executor = fluid.Executor(fluid.CPUPlace())
    x0 = np.array([[1.0, 1.0], [2.0, 1.0]], "float32")
    for steps in (3, 8, 100):
        wanted = x0.astype(np.float64)
        for _ in range(steps):
            wanted = np.concatenate([wanted, 0.5 * wanted.sum(1, keepdims=True)], axis=1)
        (found,) = executor.run(main, feed={"x": x0, "last": np.array([steps])}, fetch_list=[x])
        np.testing.assert_allclose(found, wanted, rtol=1e-4)
    assert compilations(main) == 2  # for 64 steps, and for 128


def test_a_value_that_grows_by_more_in_later_steps_is_not_taken_to_grow_evenly() -> None:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        x = layers.assign(fluid.data("x", [2, 1], "float32"))
        y = layers.assign(fluid.data("y", [2, 1], "float32"))
        i, n = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 4)
        goes_on = layers.less_than(i, n)
        with layers.While(goes_on).block():
            layers.assign(layers.concat([x, y], axis=1), x)
            layers.assign(layers.concat([y, y[:, :1]], axis=1), y)
            layers.increment(i)
            layers.less_than(i, n, cond=goes_on)
    feed = {"x": np.ones((2, 1), "float32"), "y": np.full((2, 1), 3, "float32")}
    found = fluid.Executor(fluid.CPUPlace()).run(main, feed=feed, fetch_list=[x, y])
    assert [value.shape for value in found] == [(2, 11), (2, 5)]
    assert found[0].sum() == 2 * (1 + 10 * 3)


def test_branches_inside_a_loop_take_what_does_not_grow() -> None:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        x = layers.assign(fluid.data("x", [2, 3], "float32"))
        i = layers.fill_constant([1], "int64", 0)
        early, late = layers.fill_constant([1], "int64", 2), layers.fill_constant([1], "int64", 5)

        def step(i: Any, x: Any) -> list[Any]:
            total = layers.reduce_sum(x, dim=[1], keep_dim=True)
            new = layers.case([(layers.less_than(i, early), lambda: total * 2.0)], default=lambda: total * -1.0)
            return [i + 1, layers.concat([new, x], axis=1)]

        _, last = layers.while_loop(lambda i, x: layers.less_than(i, late), step, [i, x])
    fed = np.random.RandomState(1).normal(size=(2, 3)).astype("float32")
    (found,) = fluid.Executor(fluid.CPUPlace()).run(main, feed={"x": fed}, fetch_list=[last])
    wanted = fed
    for t in range(5):
        wanted = np.concatenate([wanted.sum(1, keepdims=True) * (2 if t < 2 else -1), wanted], axis=1)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    assert compilations(main) == 1
