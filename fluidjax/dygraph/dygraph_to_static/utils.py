"""Conversion of syntax trees to source code and functions."""

from __future__ import annotations

import ast
import atexit
import contextlib
import inspect
import os
import tempfile
from collections.abc import Mapping
from typing import Any

from fluidjax.base.errors import explain
from fluidjax.dygraph.dygraph_to_static.calls import (
    dygraph_class_to_static_api,
    is_api_in_module,
    is_dygraph_api,
    is_numpy_api,
    is_paddle_api,
    is_to_variable,
    to_static_api,
)
from fluidjax.dygraph.dygraph_to_static.nodes import (
    RenameTransformer,
    create_api_shape_node,
    create_assign_node,
    create_funcDef_node,
    generate_name_node,
    get_constant_variable_node,
    index_in_list,
    is_candidate_node,
)
from fluidjax.dygraph.dygraph_to_static.static_analysis import NodeVarType, StaticAnalysisVisitor, module_of
from fluidjax.dygraph.dygraph_to_static.trees import kind, source_of

__all__ = [
    "IsControlFlowVisitor",
    "RenameTransformer",
    "ast_to_func",
    "ast_to_source_code",
    "compare_with_none",
    "create_api_shape_node",
    "create_assign_node",
    "create_funcDef_node",
    "dygraph_class_to_static_api",
    "generate_name_node",
    "get_attribute_full_name",
    "get_constant_variable_node",
    "index_in_list",
    "is_api_in_module",
    "is_candidate_node",
    "is_control_flow_to_transform",
    "is_dygraph_api",
    "is_numpy_api",
    "is_paddle_api",
    "is_to_variable",
    "to_static_api",
]


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


def compare_with_none(node: Any) -> bool:
    """Whether a tree is a comparison with None."""
    if kind(node) != "Compare":
        return False
    return any(kind(side) == "Constant" and side.value is None for side in (node.left, node.comparators[0]))


def is_control_flow_to_transform(
    node: Any, static_analysis_visitor: Any = None, var_name_to_type: Mapping[str, set[int]] | None = None
) -> bool:
    """Whether a statement or condition is one of variables; arguments as for ``IsControlFlowVisitor``."""
    if not isinstance(node, ast.AST):
        raise AssertionError(
            f"The type of input node must be gast.AST, but received {type(node)}. Parse the source first."
        )
    return IsControlFlowVisitor(node, static_analysis_visitor, var_name_to_type).transform()


class IsControlFlowVisitor(ast.NodeVisitor):
    """Looks for variables in the condition of a statement, or in a condition itself.

    A loop is of variables too where it has a ``break`` or ``continue`` of its own; ``for`` only over ``range``.

    Args:
        ast_node: a tree of ``ast`` or ``gast``.
        static_analysis_visitor: what is known of the function around; by default of the tree alone.
        node_var_type_map: the types of names, where they are known.
    """

    def __init__(
        self,
        ast_node: Any,
        static_analysis_visitor: Any = None,
        node_var_type_map: Mapping[str, set[int]] | None = None,
    ) -> None:
        if not isinstance(ast_node, ast.AST):
            raise AssertionError(
                f"Type of input node should be gast.AST, but received {type(ast_node)}. Parse the source first."
            )
        self.ast_root = ast_node
        known = StaticAnalysisVisitor(ast_node) if static_analysis_visitor is None else static_analysis_visitor
        self.node_to_wrapper_map = known.get_node_to_wrapper_map()
        self._types = node_var_type_map or {}
        self._count = 0
        self._compared: set[Any] = set()

    def transform(self) -> bool:
        """Whether there are any."""
        node: Any = self.ast_root
        what = kind(node)
        if what == "If":
            self.visit(node.test)
        elif what == "While":
            self.generic_visit(node.test)
            self._count += _has_jump(node)
        elif what != "For":
            self.visit(node)
        elif kind(node.iter) == "Call" and kind(node.iter.func) == "Name" and node.iter.func.id == "range":
            for bound in node.iter.args:
                self.visit(bound)
            self._count += _has_jump(node)
        return self._count > 0

    def get_compare_nodes_with_tensor(self) -> set[Any]:
        """The comparisons of variables among what was looked at."""
        return self._compared

    def visit(self, node: Any) -> None:
        """Look at a tree."""
        getattr(self, f"visit_{kind(node)}", self.generic_visit)(node)

    def visit_Compare(self, node: Any) -> None:
        """A comparison; with None it is never one of variables."""
        before = self._count
        if not compare_with_none(node):
            self.generic_visit(node)
        if self._count > before:
            self._compared.add(node)

    def visit_Call(self, node: Any) -> None:
        """A call of ours, or of ``numpy()``, gives a variable."""
        self._count += kind(node.func) == "Attribute" and node.func.attr == "numpy"
        self._count += module_of(source_of(node.func)).startswith("fluidjax")

    def visit_Name(self, node: Any) -> None:
        """A name that is known to be of a variable."""
        self._count += self._is_tensor(node, node.id)

    def visit_Constant(self, node: Any) -> None:
        """A text may be the name of one."""
        self._count += self._is_tensor(node, node.value)

    def _is_tensor(self, node: Any, name: Any) -> bool:
        wrapper = self.node_to_wrapper_map.get(node)
        types = set(self._types.get(name, ())) if isinstance(name, str) else set()
        if wrapper is not None:
            types |= wrapper.node_var_type
        return bool(types & NodeVarType.TENSOR_TYPES)


def _has_jump(loop: Any) -> bool:
    """Whether a loop has a ``break`` or ``continue`` that is not of a loop within."""
    pending = list(ast.iter_child_nodes(loop))
    while pending:
        node = pending.pop()
        if kind(node) in ("Break", "Continue"):
            return True
        if kind(node) not in ("For", "While"):
            pending += ast.iter_child_nodes(node)
    return False
