"""``python -m tests.golden.functions [case ...]``: network recordings replayed through ``fluidjax.to_jax``."""

from __future__ import annotations

import sys
from typing import Any

import jax
import numpy as np

import fluidjax as fluid
from fluidjax.execution.scopes.exchange import to_holder
from tests.golden.session import Session, value_of
from tests.golden.values import Tensor, Value
from tests.golden.zoocase import zoo_case, zoo_cases
from tests.golden.zoorunner import Replay, Report


class FunctionSession(Session):
    """Runs programs as pure functions under jit: state out of the scope, in and out of the function, back again."""

    def __init__(self) -> None:
        super().__init__()
        self.functions: dict[Any, Any] = {}

    def run(self, program: Any, feed: dict[str, Value], fetch: list[str]) -> dict[str, Value | None]:
        key = (program, tuple(feed), tuple(fetch))
        parsed = self.programs.setdefault(program, fluid.Program.parse_from_string(program))
        function, parameters = fluid.to_jax(parsed, list(feed), fetch, scope=self.scope)
        step = self.functions.setdefault(key, jax.jit(function.step))
        inputs = {name: _input(value) for name, value in feed.items() if isinstance(value, Tensor)}
        random = jax.random.key(0) if function.random else None
        with jax.enable_x64(True):
            outputs, after = step(parameters, inputs, random)
        fluid.from_jax({name: after[name] for name in function.written}, self.scope)
        return {name: value_of(to_holder(value)) for name, value in zip(fetch, outputs, strict=True)}


def _input(value: Tensor) -> Any:
    if not value.lod:
        return value.array
    return fluid.ragged(value.array, [list(np.diff(level)) for level in value.lod])


def replay(name: str) -> Report:
    """Training steps, final state and test program of one recording."""
    run = Replay(zoo_case(name))
    run.session = FunctionSession()
    return run.run(["steps", "test"])


def main() -> int:
    """Replay and report; the exit status is 1 when a case failed or none ran."""
    names = sys.argv[1:] or zoo_cases()
    passed = 0
    for name in names:
        report = replay(name)
        passed += report.passed
        print(f"{'ok  ' if report.passed else 'FAIL'}  {name:42s} {report.checks:5d} checks", flush=True)
        print("".join(f"        {p[:300]}\n" for p in report.problems[:3]), end="", flush=True)
    print(f"{len(names)} networks, {passed} pass")
    return 0 if passed == len(names) > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
