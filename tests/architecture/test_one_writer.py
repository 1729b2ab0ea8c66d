"""Runs write to a Scope through one module: nobody else of the executor changes what a scope or its variables hold."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "fluidjax"
FILES = sorted([ROOT / "executor.py", *(ROOT / "execution").rglob("*.py")])
WRITER = ROOT / "execution" / "writer.py"

# What a variable or tensor holds, and how it is changed; all of them by scopes, variables and tensors alone.
FIELDS = {"_holder", "_held", "_array", "_stored", "_lod", "_levels", "_vars"}
SETTERS = {"erase", "get_tensor", "get_selected_rows", "get_lod_tensor_array", "set_int", "set_float", "_set_value"}
# Tensors that are made there, of which no scope knows.
OWN = {
    ("execution/scopes/exchange.py", "_set_value"),
    ("execution/scopes/exchange.py", "get_tensor"),
    ("execution/feeding/feed.py", "_set_value"),
    ("execution/devices/shares.py", "_set_value"),
}
READS = {("executor.py", "get_tensor")}  # _fetch_var hands out a tensor


def _writes(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del) and node.attr in FIELDS:
            yield node.attr
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = node.func.attr
            made = name == "var" and "scope" in ast.unparse(node.func.value)
            if made or name in SETTERS:
                yield name
            if isinstance(node.func.value, ast.Attribute) and node.func.value.attr == "_vars" and name != "get":
                yield f"_vars.{name}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_only_the_writer_writes(path: Path) -> None:
    name = str(path.relative_to(ROOT))
    found = {(name, write) for write in _writes(ast.parse(path.read_text()))}
    if path == WRITER:
        assert {write for _, write in found} >= {
            "_holder",
            "_array",
            "_lod",
            "_stored",
            "_set_value",
            "get_tensor",
            "var",
        }
    else:
        assert not found - OWN - READS
