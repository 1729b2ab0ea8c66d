"""docs/deviations.md: every entry names a test that is there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_ENTRY = re.compile(r"^- .*?(?=^- |^## |\Z)", re.MULTILINE | re.DOTALL)
_TEST = re.compile(r"`(?:(tests/[\w/]+\.py|test_\w+\.py)(?:::)?)?(test_\w+)?(?:\[[^`]*\])?`")


def entries() -> list[str]:
    """The entries of the page, without its contents and the recordings that are listed at its end."""
    page = (ROOT / "docs/deviations.md").read_text().split("\n## Recordings")[0].partition("\n## ")[2]
    return [" ".join(entry.split()) for entry in _ENTRY.findall(page)]


def functions(path: Path) -> set[str]:
    """The names of all functions of a file."""
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry[2:50])
def test_an_entry_names_its_test(entry: str) -> None:
    assert "Test: " in entry
    named = entry.split("Test: ", 1)[1]
    folder, path, found = ROOT, None, 0
    for file, function in _TEST.findall(named):
        if file:
            path = ROOT / file if file.startswith("tests/") else folder / file
            folder = path.parent
            assert path.exists(), file
        if function and path is not None:
            assert function in functions(path), f"{path.relative_to(ROOT)}::{function}"
        found += bool(file)
    assert found, named


def test_there_are_entries() -> None:
    assert len(entries()) > 60
