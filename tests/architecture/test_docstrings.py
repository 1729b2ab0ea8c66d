"""Every public module, class and function says what it is for."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.architecture.test_imports import MODULES, parsed


def _undocumented(body: list[ast.stmt], where: str) -> Iterator[str]:
    for node in body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or node.name.startswith("_"):
            continue
        if not ast.get_docstring(node) and not _is_documented_elsewhere(node):
            yield f"{where}.{node.name}"
        if isinstance(node, ast.ClassDef):
            yield from _undocumented(node.body, f"{where}.{node.name}")


def _is_documented_elsewhere(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """A class that takes its base's text by ``__doc__ = ...``; a setter, whose getter has the text; an overload."""
    assigned = [ast.unparse(s.targets[0]) for s in node.body if isinstance(s, ast.Assign)]
    decorators = [ast.unparse(d).split(".")[-1] for d in node.decorator_list]
    return "__doc__" in assigned or bool({"setter", "overload"} & set(decorators))


def test_what_is_public_has_a_docstring() -> None:
    found = []
    for name, path in MODULES.items():
        tree = parsed(path)
        found += [] if ast.get_docstring(tree) else [name]
        found += _undocumented(tree.body, name)
    assert not found
