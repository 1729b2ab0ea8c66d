"""Building a small program and running it, in whole or by the lowering alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import fluidjax as fluid


def build(network: Callable[[], Any]) -> tuple[fluid.Program, fluid.Program, Any]:
    """(main program, startup program, what ``network`` returns)."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        return main, startup, network()


def run(
    main: fluid.Program,
    startup: fluid.Program,
    feed: dict[str, Any],
    fetch: list[Any],
    values: dict[str, np.ndarray] | None = None,
    interpret: bool = False,
) -> list[np.ndarray]:
    """Start, set parameters to ``values``, run once and fetch."""
    executor, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    with fluid.scope_guard(scope):
        executor.run(startup)
        for name, value in (values or {}).items():
            scope.var(name).get_tensor().set(value, fluid.CPUPlace())
        if not interpret:
            return rows(executor.run(main, feed=feed, fetch_list=fetch, return_numpy=False))
        with fluid.interpret_mode():
            return rows(executor.run(main, feed=feed, fetch_list=fetch, return_numpy=False))


def rows(values: list[Any]) -> list[np.ndarray]:
    """Fetched tensors without their LoD."""
    return [np.array(value) for value in values]


def ragged(rows: np.ndarray, lengths: list[int]) -> Any:
    """A LoDTensor of one level."""
    return fluid.create_lod_tensor(rows, [lengths], fluid.CPUPlace())
