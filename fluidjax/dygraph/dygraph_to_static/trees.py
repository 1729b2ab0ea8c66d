"""Syntax trees of Python's ``ast``, or of the ``gast`` package for scripts that use it.

Node classes have the same names in both, so nodes are distinguished by class name.
"""

from __future__ import annotations

import ast
import sys
from typing import Any


def kind(node: Any) -> str:
    """The class name of a node."""
    return type(node).__name__


def is_of_gast(node: Any) -> bool:
    """Whether a node was created by gast."""
    return "gast" in sys.modules and type(node).__module__.partition(".")[0] == "gast"


def to_ast(node: Any) -> Any:
    """Convert a tree to Python's ``ast``."""
    return sys.modules["gast"].gast_to_ast(node) if is_of_gast(node) else node


def back(node: ast.AST, like: Any) -> Any:
    """Convert an ``ast`` tree to the form of `like`."""
    return sys.modules["gast"].ast_to_gast(node) if is_of_gast(like) else node


def source_of(node: Any) -> str:
    """The source code of a tree. Raises TypeError for anything else."""
    if not isinstance(node, ast.AST):
        raise TypeError(
            f"Type of ast_root should be gast.AST or ast.AST, but received {type(node)}. Parse the source first."
        )
    return ast.unparse(ast.fix_missing_locations(to_ast(node)))
