"""Conversion of syntax trees to source code and functions."""

from __future__ import annotations

import ast
import atexit
import contextlib
import inspect
import os
import tempfile
from typing import Any

from fluidjax.base.errors import explain
from fluidjax.dygraph.dygraph_to_static.trees import source_of

__all__ = ["ast_to_func", "ast_to_source_code", "get_attribute_full_name"]


def ast_to_source_code(ast_node: Any) -> str:
    """The source code of an ``ast`` or ``gast`` tree. Raises TypeError for anything else."""
    return source_of(ast_node) + "\n"


def get_attribute_full_name(node: Any) -> str:
    """``"a.b.c"`` for an attribute node. Raises AssertionError for any other node."""
    assert isinstance(node, ast.AST) and type(node).__name__ == "Attribute", (
        f"expected the node of an attribute, received {type(node).__name__}: pass that of a.b"
    )
    return source_of(node)


def ast_to_func(ast_root: Any, dyfunc: Any, delete_on_exit: bool = True) -> tuple[Any, str]:
    """Compile a modified tree; returns the function and the file containing its source.

    Args:
        ast_root: an ``ast`` or ``gast`` tree that defines a function with the name of `dyfunc`.
        dyfunc: the function from which the tree was read; the new one shares its globals and closure.
        delete_on_exit: whether to delete the file when Python exits.

    Raises TypeError if `ast_root` is not a tree, ValueError if it does not define a function of that name.
    """
    source = ast_to_source_code(ast_root)
    with tempfile.NamedTemporaryFile("w", suffix=".py", delete=False, encoding="utf-8") as file:
        file.write(source)
    if delete_on_exit:
        atexit.register(_remove, file.name)
    plain = inspect.unwrap(dyfunc)
    names = {**getattr(plain, "__globals__", {}), **_closed_over(plain)}
    exec(compile(source, file.name, "exec", dont_inherit=True), names)
    defined = [n.name for n in ast.parse(source).body if isinstance(n, ast.FunctionDef)]
    if dyfunc.__name__ not in defined:
        raise ValueError(
            explain(
                "ast_to_func: the tree does not define the function",
                f"a def of {dyfunc.__name__}",
                ", ".join(defined) or "no def",
                "pass the tree of the function's source",
            )
        )
    return names[dyfunc.__name__], file.name


def _closed_over(function: Any) -> dict[str, Any]:
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    found = {}
    for name, cell in zip(names, getattr(function, "__closure__", None) or (), strict=True):
        with contextlib.suppress(ValueError):  # not bound yet
            found[name] = cell.cell_contents
    return found


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.remove(path)
