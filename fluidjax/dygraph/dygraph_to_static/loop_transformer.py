"""Loops in a syntax tree: the names they carry, and their converted form."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any

from fluidjax.dygraph.dygraph_to_static.static_analysis import AstNodeWrapper, NodeVarType, StaticAnalysisVisitor
from fluidjax.dygraph.dygraph_to_static.trees import back, kind, source_of, to_ast
from fluidjax.to_static.statements import Statements

__all__ = ["LoopTransformer", "NameVisitor"]

_BASIC = {NodeVarType.BOOLEAN, NodeVarType.INT, NodeVarType.FLOAT, NodeVarType.STRING}
_READS = ("Load", "AugLoad")
_WRITES = ("Store", "AugStore", "Del")


@dataclass
class _Loop:
    """The nodes of names seen before the loop, within it, assigned in it, and in its condition."""

    before: set[Any] = field(default_factory=set)
    within: set[Any] = field(default_factory=set)
    written: set[Any] = field(default_factory=set)
    condition: set[Any] = field(default_factory=set)


class NameVisitor(ast.NodeVisitor):
    """Finds the names carried by the loops of a function from one iteration to the next.

    Args:
        root_node: an ``ast`` or ``gast`` tree.
    """

    def __init__(self, root_node: Any) -> None:
        self._types = StaticAnalysisVisitor(root_node).get_node_to_wrapper_map()
        self._seen: set[Any] = set()
        self._hidden = {"False", "True", "None"}
        self._depth = 0
        self._open: list[_Loop] = []
        self._in_condition = False
        self._loops: dict[Any, _Loop] = {}
        self.visit(root_node)

    def is_control_flow_loop(self, node: Any) -> bool:
        """Whether a loop may become a program loop: always true, since this depends on the values found at run time."""
        return kind(node) in ("While", "For")

    def get_loop_var_names(self, node: Any) -> tuple[set[str], set[str]]:
        """(the names carried by a loop, those of them first assigned by it).

        A name bound before the loop is carried unless it is a number or string only read in the body; any other name is
        carried if it is read afterwards. Raises AssertionError for anything but a while or for.
        """
        assert self.is_control_flow_loop(node), f"expected a while or for, received {kind(node)}: pass the loop's node"
        loop = self._loops[node]
        before, within = _names(loop.before), _names(loop.within)
        after = _names(n for n in self._seen - loop.before - loop.within if kind(n.ctx) in _READS)
        fixed = within - _names(loop.condition) - _names(loop.written)
        types = {_name(n): self._types[n].node_var_type for n in loop.within}
        carried = {name for name in within & before if name not in fixed or not types[name] & _BASIC}
        created = (within - before) & after
        return carried | created, created

    def visit(self, node: Any) -> Any:
        """Record the names in a tree."""
        return getattr(self, f"visit_{kind(node)}", self.generic_visit)(node)

    def visit_Name(self, node: Any) -> None:
        """Record a name, unless it is the function of a call."""
        if not self._is_called(node) and node.id not in self._hidden:
            self._note(node, kind(node.ctx) in _WRITES)
            self.generic_visit(node)

    def visit_Attribute(self, node: Any) -> None:
        """Treat ``a.b`` as one name; names of the receiver are ignored."""
        if not self._is_called(node) and not _name(node).startswith("self."):
            self._note(node, False)

    def visit_FunctionDef(self, node: Any) -> None:
        """Ignore names inside nested functions, which are not visible outside."""
        self._hidden.add(node.name)
        seen = set(self._seen)
        self._depth += 1
        self.generic_visit(node)
        self._depth -= 1
        if self._depth:
            self._seen = seen

    def visit_For(self, node: Any) -> None:
        """Visit a for loop; its target and iterable form its condition."""
        self._visit_loop(node, node.target, node.iter)

    def visit_While(self, node: Any) -> None:
        """Visit a while loop."""
        self._visit_loop(node, node.test)

    def _visit_loop(self, node: Any, *condition: Any) -> None:
        loop = self._loops[node] = _Loop()
        self._open.append(loop)
        self._in_condition = True
        for part in condition:
            self.visit(part)
        self._in_condition = False
        loop.before = set(self._seen)
        self.generic_visit(node)
        self._open.pop()

    def _note(self, node: Any, written: bool) -> None:
        self._seen.add(node)
        for loop in self._open:
            loop.within.add(node)
            if written:
                loop.written.add(node)
            if self._in_condition and kind(node) == "Name":
                loop.condition.add(node)

    def _is_called(self, node: Any) -> bool:
        parent = self._types[node].parent
        return parent is not None and kind(parent.node) == "Call" and parent.node.func is node


def _name(node: Any) -> str:
    return node.id if kind(node) == "Name" else source_of(node)


def _names(nodes: Any) -> set[str]:
    return {_name(node) for node in nodes}


class LoopTransformer(ast.NodeTransformer):
    """Replaces the loops of a tree's functions by their converted form.

    Args:
        wrapper_root: the wrapper of the root.
    """

    def __init__(self, wrapper_root: AstNodeWrapper) -> None:
        self.wrapper_root, self.root = wrapper_root, wrapper_root.node

    def transform(self) -> None:
        """Transform the tree."""
        self.visit(self.root)

    def visit(self, node: Any) -> Any:
        """Transform the functions of a tree."""
        for name, value in ast.iter_fields(node):
            if isinstance(value, list):
                setattr(node, name, [self._changed(v) for v in value])
        return node

    def _changed(self, node: Any) -> Any:
        if kind(node) == "FunctionDef":
            plain = ast.fix_missing_locations(to_ast(node))
            return back(ast.fix_missing_locations(_Loops(None, None).function(plain)), node)
        return self.visit(node) if isinstance(node, ast.AST) else node


class _Loops(Statements):
    """Rewrites loops alone."""

    def visit_If(self, node: ast.If) -> Any:
        """Keep an if statement; rewrite its contents."""
        node.body, node.orelse = self._block(node.body), self._block(node.orelse)
        return node
