"""docs/performance.md is what its numbers give."""

import json
from pathlib import Path

import pytest

from benchmarks import page, tables
from benchmarks.page import PARTS, ROOT

FOLDER = ROOT / "docs"


def test_the_page_is_written_from_the_numbers_beside_it() -> None:
    numbers = json.loads((FOLDER / "performance" / "numbers.json").read_text())
    assert set(numbers) == set(PARTS)
    assert (FOLDER / "performance.md").read_text() == tables.page(numbers)


def _kept(folder: Path, machine: str) -> Path:
    before = {"jax": {"cpu": 2.0, "peak": 7.0}, "paddle": {"cpu": 1.0}}
    kept = folder / "numbers.json"
    page.keep(kept, "one", {"machine": machine, "results": {"mlp": before, "lenet": before}})
    return kept


def test_numbers_that_are_measured_again_are_the_best_of_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    again = {"jax": {"cpu": 3.0, "peak": 5.0, "newer": 6.0}, "torch": {"cpu": 4.0}}
    monkeypatch.setitem(PARTS, "one", lambda extent, pythons: ((model, again) for model in extent.models))
    monkeypatch.setattr(page, "found_pythons", dict)
    monkeypatch.setattr(tables, "machine", lambda: "a processor (load 2.0); jax 1; 2026-01-02")
    kept = _kept(tmp_path, "a processor (load 0.1); jax 1; 2026-01-01")
    page.measure_again(["one"], ["mlp"], page.ALL, kept)
    part = json.loads(kept.read_text())["one"]
    jax = {"cpu": 2.0, "peak": 5.0, "newer": 6.0}  # the last is of a newer benchmark than the kept numbers
    assert part["results"]["mlp"] == {"jax": jax, "paddle": {"cpu": 1.0}, "torch": {"cpu": 4.0}}
    assert part["results"]["lenet"]["jax"] == {"cpu": 2.0, "peak": 7.0}
    assert part["again"] == ["mlp"]


def test_numbers_of_another_machine_are_not_mixed_with_those_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "found_pythons", dict)
    monkeypatch.setattr(tables, "machine", lambda: "a processor (load 2.0); jax 2; 2026-01-02")
    kept = _kept(tmp_path, "a processor (load 0.1); jax 1; 2026-01-01")
    with pytest.raises(ValueError, match="measured on another machine: a processor.*jax 1"):
        page.measure_again(["one"], ["mlp"], page.ALL, kept)
