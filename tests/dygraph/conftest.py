"""Each test of eager mode begins as in a new process, but for compiled kernels."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from fluidjax.eager.sequences import blocks, tiers, whole
from tests.dygraph import afresh


@pytest.fixture(autouse=True)
def nothing_remembered() -> Iterator[None]:
    """See ``afresh``."""
    with afresh.nothing_remembered():
        yield


@pytest.fixture(autouse=True)
def compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """How long steps take and how many processors there are decide nothing here (test_tiers, test_rooms see to it)."""
    monkeypatch.setattr(tiers, "_WELL", 1e9)
    monkeypatch.setattr(blocks, "PRICE", 1e9)
    monkeypatch.setattr(blocks, "one_processor", lambda: False)


@pytest.fixture
def compiled_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that compare bits of small nets: where blocks are compiled well, these are as those of single ops."""
    for module in (blocks, whole):
        monkeypatch.setattr(module, "light", lambda *args: False)


@pytest.fixture
def own_kernels() -> Iterator[None]:
    """See ``afresh``."""
    with afresh.few_kernels():
        yield


@pytest.fixture(scope="module")
def compiled_quickly(compiled_quickly: None) -> Iterator[None]:
    """Kernels are of the file too, for they outlive what jax keeps of them."""
    with afresh.own_kernels():
        yield


@pytest.fixture(autouse=True, scope="module")
def collects_its_own() -> Iterator[None]:
    """Tests that collect garbage look through what their file made, and not through what a whole suite left."""
    gc.freeze()
    yield
    gc.unfreeze()
