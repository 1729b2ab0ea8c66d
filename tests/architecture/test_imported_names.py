"""Whatever a file of this repository imports from another one is there, even where only a few run it."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OURS = ("fluidjax", "lowering", "tests", "benchmarks", "tools", "demo")


def _imported(path: Path) -> Iterator[tuple[str, str, int]]:
    """(module, name, line) of ``from module import name`` wherever it stands in a file; '' for ``import module``."""
    package = ".".join(path.relative_to(ROOT).parent.parts)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            module = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            yield from ((module, alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "", node.lineno) for alias in node.names)


def _is_there(module: str, name: str) -> bool:
    """Also where a peer's package that it imports is not installed here: then nobody can tell."""
    try:
        if not name or name == "*" or hasattr(importlib.import_module(module), name):
            return importlib.util.find_spec(module) is not None
        return importlib.util.find_spec(f"{module}.{name}") is not None
    except ModuleNotFoundError as error:
        return str(error.name).partition(".")[0] not in OURS


@pytest.mark.parametrize("folder", OURS)
def test_what_is_imported_from_our_own_files_is_there(folder: str) -> None:
    missing = [
        f"{path.relative_to(ROOT)}:{line}: {module} has no {name or 'file'}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for module, name, line in _imported(path)
        if module.partition(".")[0] in OURS and not _is_there(module, name)
    ]
    assert missing == []
