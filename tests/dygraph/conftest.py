"""Each test of eager mode begins as in a new process, but for compiled kernels."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.dygraph import afresh


@pytest.fixture(autouse=True)
def nothing_remembered() -> Iterator[None]:
    """See ``afresh``."""
    with afresh.nothing_remembered():
        yield


@pytest.fixture
def own_kernels() -> Iterator[None]:
    """See ``afresh``."""
    with afresh.own_kernels():
        yield
