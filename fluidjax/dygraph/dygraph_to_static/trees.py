"""Syntax trees of Python's ``ast``, or of the package ``gast`` where a script made them with it.

The classes of both have the same names; so nodes are told apart by these.
"""

from __future__ import annotations

import ast
import sys
from typing import Any


def kind(node: Any) -> str:
    """The name of a node's class."""
    return type(node).__name__


def is_of_gast(node: Any) -> bool:
    """Whether a node was made by the package gast."""
    return "gast" in sys.modules and type(node).__module__.partition(".")[0] == "gast"


def to_ast(node: Any) -> Any:
    """The tree as Python's own."""
    return sys.modules["gast"].gast_to_ast(node) if is_of_gast(node) else node


def back(node: ast.AST, like: Any) -> Any:
    """A tree of Python's in the form that `like` has."""
    return sys.modules["gast"].ast_to_gast(node) if is_of_gast(like) else node


def source_of(node: Any) -> str:
    """The source of a tree. Raises TypeError for anything else."""
    if not isinstance(node, ast.AST):
        raise TypeError(
            f"Type of ast_root should be gast.AST or ast.AST, but received {type(node)}. Parse the source first."
        )
    return ast.unparse(ast.fix_missing_locations(to_ast(node)))
