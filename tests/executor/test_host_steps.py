"""Ops that run on the host do as one by one in a runner, and what is the same in every run is worked out once."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.execution.runs import segmented
from lowering.dtypes import LOD_TENSOR, from_numpy
from lowering.engine.host_steps import HostStep, HostSteps
from lowering.engine.runner import Runner
from lowering.program import BlockView, OpView, ProgramView, VarView
from lowering.values import Form, LoDArray, SelectedRows

FLOAT, LONG = from_numpy(np.dtype("float32")), from_numpy(np.dtype("int64"))
SPLIT = OpView("split_selected_rows", {"X": ["g"]}, {"Out": ["a", "b"]}, {"height_sections": [3, 4]}, 0)
DEAL = OpView("split_ids", {"Ids": ["ids", "more"]}, {"Out": ["even", "odd"]}, {}, 0)
MERGE = OpView("merge_ids", {"Ids": ["ids"], "Rows": ["rows"], "X": ["x"]}, {"Out": ["out"]}, {}, 0)
FIND = OpView("unique", {"X": ["ids"]}, {"Out": ["out"], "Index": ["index"]}, {"dtype": 3}, 0)


def rows(rng: Any) -> SelectedRows:
    return SelectedRows(np.array([0, 5, 2, 5]), rng.standard_normal((4, 2)).astype("float32"), 7)


def given(rng: Any) -> dict[str, Any]:
    ids = np.array([[4], [7], [4], [0]])
    numbers = np.array([0, 4, 7])
    table = rng.standard_normal((3, 2)).astype("float32")
    return {"g": rows(rng), "ids": ids, "more": LoDArray(ids[:2], (np.array([0, 2], np.int32),)), "rows": numbers} | {
        "x": table
    }


def program(ops: list[OpView], version: int = 0, **declared: int) -> ProgramView:
    variables = {n: VarView(n, LOD_TENSOR, kind, (-1, 1), 0, persistable=False) for n, kind in declared.items()}
    return ProgramView((BlockView(0, -1, tuple(ops), variables),), version)


def outcome(run: Any, env: dict[str, Any]) -> Any:
    try:
        run(env)
    except Exception as error:
        return type(error), str(error)
    return env


def same(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for name in one:
            same(one[name], other[name])
    elif dataclasses.is_dataclass(one):
        for spec in dataclasses.fields(one):
            same(getattr(one, spec.name), getattr(other, spec.name))
    else:
        np.testing.assert_array_equal(one, other)
        assert getattr(one, "dtype", None) == getattr(other, "dtype", None)


def both(view: ProgramView, env: dict[str, Any]) -> Any:
    """What a runner and host steps make of the program's ops; the same."""
    ops = view.blocks[0].ops

    def runner() -> Runner:
        return Runner(view, interpret=True)

    alone = outcome(lambda e: runner().run_ops(ops, e), dict(env))
    steps = HostSteps(view, ops, list(env), "cpu")
    for _ in range(2):
        found = outcome(lambda e: steps.run(runner(), e), dict(env))
        same(found, alone)
    return alone


@pytest.mark.parametrize("op", [SPLIT, DEAL, MERGE, FIND], ids=lambda op: op.type)
def test_results_are_those_of_a_runner(op, rng):
    found = both(program([op]), given(rng))
    assert set(op.output_names()) <= found.keys()


def test_a_runner_is_asked_for_nothing(rng, monkeypatch):
    view, env = program([SPLIT, DEAL, MERGE, FIND]), given(rng)
    steps = HostSteps(view, view.blocks[0].ops, list(env), "cpu")
    monkeypatch.setattr(Runner, "run_op", None)
    monkeypatch.setattr(Runner, "run_ops", None)
    steps.run(Runner(view, interpret=True), env)
    assert {"a", "b", "even", "odd", "out", "index"} <= env.keys()


def test_ops_read_what_those_before_them_wrote(rng):
    again = OpView("split_selected_rows", {"X": ["b"]}, {"Out": ["c", "d"]}, {"height_sections": [2, 2]}, 1)
    found = both(program([SPLIT, again]), given(rng))
    assert found["d"].rows.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("op", "change"),
    [
        (SPLIT, {"g": None}),
        (SPLIT, {"g": np.ones((7, 2), "float32")}),
        (SPLIT, {"g": Form((7, 2), np.dtype("float32"))}),
        (MERGE, {"rows": np.array([0, 4, 8])}),
        (dataclasses.replace(SPLIT, outputs={"Out": ["a", "b", "c"]}), {}),
        (dataclasses.replace(SPLIT, inputs={}), {}),
    ],
    ids=["no value", "dense", "shape alone", "no row", "too few", "unbound"],
)
def test_errors_are_those_of_a_runner(op, change, rng):
    env = {name: value for name, value in (given(rng) | change).items() if value is not None}
    kind, text = both(program([op]), env)
    assert issubclass(kind, Exception) and text


def test_values_of_a_strange_type_are_told_to_a_runner(rng):
    """Ids fed as float32, declared int64: results declared like them have the type of what was fed."""
    env = given(rng) | {"ids": np.array([4.0, 7.0, 4.0], "float32")}
    found = both(program([FIND], ids=LONG, out=LONG), env)
    assert found["out"].dtype == np.float32


def test_programs_of_paddle_2_go_to_a_runner(rng):
    both(program([FIND], 2_006_000, ids=LONG, out=LONG, index=FLOAT), given(rng))


def test_every_op_is_told_to_who_watches(rng):
    seen: list[str] = []
    view = program([SPLIT])
    watched = Runner(view, interpret=True, after_op=lambda op, results: seen.extend(results))
    HostSteps(view, [SPLIT], ["g"], "cpu").run(watched, given(rng))
    assert seen == ["a", "b"]


def test_ops_that_draw_or_run_blocks_go_to_a_runner():
    assert not HostStep.takes(OpView("listen_and_serv", {}, {}, {"optimize_blocks": [1]}, 0))
    assert not HostStep.takes(OpView("scale", {"X": ["x"]}, {"Out": ["y"]}, {}, 0))


def test_host_ops_are_worked_out_once(monkeypatch):
    made: list[HostSteps] = []

    class Counted(HostSteps):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            made.append(self)

    monkeypatch.setattr(segmented, "HostSteps", Counted)
    main = fluid.Program()
    with fluid.program_guard(main):
        x = fluid.data("x", [None, 1], "int64")
        found, index = fluid.layers.unique(fluid.layers.reshape(x, [-1]) + 1)
        total = fluid.layers.reduce_sum(found)
    exe = fluid.Executor(fluid.CPUPlace())
    for n in range(2, 6):
        (sum_found,) = exe.run(main, {"x": np.arange(n).reshape(-1, 1) % 3}, [total])
        assert sum_found == sum({i % 3 + 1 for i in range(n)})
    assert len(made) == 1
