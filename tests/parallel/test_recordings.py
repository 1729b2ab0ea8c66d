"""Runs on two devices give what Fluid 1.8.5 gave: every fetch of every step, its errors, the final values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from tests.parallel.nets import NETS, STEPS, start

FILES = sorted((Path(__file__).parent / "data").glob("*.json"))


def strategy(case: dict[str, Any]) -> fluid.BuildStrategy:
    build = fluid.BuildStrategy()
    build.gradient_scale_strategy = getattr(fluid.BuildStrategy.GradientScaleStrategy, case["scale"])
    build.reduce_strategy = getattr(fluid.BuildStrategy.ReduceStrategy, case.get("reduce", "AllReduce"))
    return build


def steps(case: dict[str, Any], feed: Any) -> list[Any]:
    feeds = [feed(i, n) if n else feed(i) for i, n in enumerate(case.get("sizes") or [None] * STEPS)]
    if not case.get("list_feed"):
        return feeds
    cut = case.get("cut") or 4
    return [[{k: v[:cut] for k, v in f.items()}, {k: v[cut:] for k, v in f.items()}] for f in feeds]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_recording(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPU_NUM", "2")
    recorded = json.loads(path.read_text())
    case, scope = recorded["case"], fluid.Scope()
    main, startup = fluid.Program(), fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, startup), fluid.scope_guard(scope):
        loss, feed, more = NETS[case["net"]]()
        loss.persistable = True
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(startup)
        parameters = start(main, scope)
        program = fluid.CompiledProgram(main).with_data_parallel(loss.name, build_strategy=strategy(case))
        for given, expected in zip(steps(case, feed), recorded["steps"], strict=True):
            run = {"fetch_list": [loss, *more], "return_numpy": case.get("numpy", case["net"] != "lstm")}
            run |= {"return_merged": case.get("merged", True)}
            if isinstance(expected, dict):
                with pytest.raises(fluid.core.EnforceNotMet, match="expected a share"):
                    executor.run(program, given, **run)
                continue
            for found, wanted in zip(executor.run(program, given, **run), expected, strict=True):
                compare(found, wanted)
    assert set(recorded["final"]) >= {p for p in parameters if p not in ("bn_mean", "bn_var")}
    for name, wanted in recorded["final"].items():
        value = np.array(scope.find_var(name).get_tensor()).astype("float64").reshape(-1)
        some = value[np.linspace(0, value.size - 1, 8).astype("int64")]
        close([value.sum(), np.abs(value).sum(), *some], wanted, 2e-3)


def compare(found: Any, wanted: dict[str, Any]) -> None:
    if "list" in wanted:
        assert isinstance(found, list)
        for one, other in zip(found, wanted["list"], strict=True):
            compare(one, other)
        return
    if "lod" in wanted:
        assert found.lod() == wanted["lod"]
    array = np.array(found)
    assert list(array.shape) == wanted["shape"]
    close(array.astype("float64").reshape(-1)[:16], wanted["values"], 2e-4)


def close(found: Any, wanted: Any, relative: float) -> None:
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.shape == wanted.shape
    largest = np.maximum(np.maximum(np.abs(found), np.abs(wanted)), 1e-2)
    assert (np.abs(found - wanted) <= relative * largest).all(), (found, wanted)
