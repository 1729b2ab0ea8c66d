"""Training programs over ragged batches, padded and exact."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.execution.rooms.buckets import SMALLEST
from fluidjax.execution.runs import retry
from fluidjax.execution.runs.prepared import Prepared


@dataclass
class Trained:
    """What a training run left: fetches of each step, parameters by name, how often the program was compiled."""

    fetches: list[list[np.ndarray]]
    parameters: dict[str, np.ndarray]
    compilations: int

    def assert_close(self, other: Trained) -> None:
        for mine, theirs in zip(self.fetches, other.fetches, strict=True):
            for a, b in zip(mine, theirs, strict=True):
                assert np.isfinite(a).all()
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
        for name, value in self.parameters.items():
            np.testing.assert_allclose(value, other.parameters[name], rtol=1e-4, atol=1e-5, err_msg=name)


Build = Callable[[], Sequence[Any]]
Feeds = Sequence[Mapping[str, Any]]


def train(build: Build, feeds: Feeds) -> Trained:
    """Run the program of ``build``, which returns the loss and what else to fetch, once on each of ``feeds``."""
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    main.random_seed = startup.random_seed = 7
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(scope):
        wanted = list(build())
        fluid.optimizer.SGD(learning_rate=0.1).minimize(wanted[0])
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        found = [exe.run(main, feed=feed, fetch_list=wanted, return_numpy=False) for feed in feeds]
        values = {p.name: np.array(scope.find_var(p.name).get_tensor()) for p in main.all_parameters()}
    count = sum(p.compilations for p in main.__dict__["_prepared_cache"].values())
    return Trained([[np.array(v) for v in step] for step in found], values, count)


@pytest.fixture(autouse=True)
def small_rooms(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few rows are no reason for more room, so that few rows are enough to outgrow it."""
    monkeypatch.setattr(retry, "least_rows", lambda program: SMALLEST)


@pytest.fixture
def train_exact(monkeypatch: pytest.MonkeyPatch) -> Callable[[Build, Feeds], Trained]:
    """``train`` without any padding from the first step on."""

    def run(build: Build, feeds: Feeds) -> Trained:
        make = Prepared.__init__

        def exact(self: Prepared, *args: Any, **options: Any) -> None:
            make(self, *args, **options)
            self._attempts.exact = True

        with monkeypatch.context() as patch:
            patch.setattr(Prepared, "__init__", exact)
            return train(build, feeds)

    return run


def ragged(rows: np.ndarray, lengths: Sequence[int]) -> fluid.LoDTensor:
    return fluid.create_lod_tensor(rows, [list(lengths)], fluid.CPUPlace())
