"""Default programs and a global scope of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import fluidjax as fluid


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    with (
        fluid.program_guard(fluid.Program(), fluid.Program()),
        fluid.unique_name.guard(),
        fluid.scope_guard(fluid.Scope()),
    ):
        yield
