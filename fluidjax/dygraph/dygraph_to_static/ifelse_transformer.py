"""Conditions of a syntax tree as ops, and the names that statements use.

The converter does not ask: converted code looks at the values that it finds. It is here for those who analyse sources.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from fluidjax import unique_name
from fluidjax.dygraph.dygraph_to_static.static_analysis import NodeVarType, StaticAnalysisVisitor
from fluidjax.dygraph.dygraph_to_static.trees import back, kind, source_of
from fluidjax.dygraph.dygraph_to_static.utils import IsControlFlowVisitor, compare_with_none

_CANDIDATES = ("Compare", "BoolOp", "UnaryOp", "For", "If", "While")


def get_name_ids(nodes: Iterable[Any], end_node: Any = None) -> dict[str, list[Any]]:
    """The contexts (Load, Store, Param) in which trees use each name, in the order of a run.

    Args:
        nodes: trees of ``ast`` or ``gast``.
        end_node: where to stop. What is written in one branch of an ``if`` before it alone is left out then, and what
            both write counts as one Store.

    Names that are called, and those of results, are left out.
    """
    names = _Names(end_node)
    for node in nodes:
        names.visit(node)
    return names.found


class _Names(ast.NodeVisitor):
    """Collects names and their contexts until a node is reached."""

    def __init__(self, end: Any) -> None:
        self.end, self.ended = end, False
        self.found: dict[str, list[Any]] = defaultdict(list)

    def visit(self, node: Any) -> None:
        """Collect those of a tree."""
        if node is self.end or self.ended:
            self.ended = True
            return
        getattr(self, f"visit_{kind(node)}", self.generic_visit)(node)

    def visit_Name(self, node: Any) -> None:
        """A name."""
        if node.id not in ("True", "False", "None"):
            self.found[node.id].append(node.ctx)

    def visit_Call(self, node: Any) -> None:
        """A call: the name of what is called is none of a value."""
        for part in [node.func] * (kind(node.func) not in ("Name", "Attribute")) + [*node.args, *node.keywords]:
            self.visit(part)

    def visit_Assign(self, node: Any) -> None:
        """An assignment: the value is there before the targets."""
        for part in [node.value, *node.targets]:
            self.visit(part)

    def visit_Return(self, node: Any) -> None:
        """A result is no name that a branch has to give."""

    def visit_FunctionDef(self, node: Any) -> None:
        """A function within: its names are seen from inside alone."""
        before = self._begin()
        self.generic_visit(node)
        self._end(before, None if self.end is not None else self.found)

    def visit_If(self, node: Any) -> None:
        """A branch."""
        if self.end is None:
            return self.generic_visit(node)
        before = self._begin()
        branches = []
        for branch in (node.body, node.orelse):
            self.found = defaultdict(list)
            for statement in branch:
                self.visit(statement)
            if self.ended:
                return self._end(before, None)
            branches.append(_written(self.found))
        return self._end(
            before, {name: [contexts[-1]] for name, contexts in branches[0].items() if name in branches[1]}
        )

    def _begin(self) -> dict[str, list[Any]]:
        before, self.found = self.found, defaultdict(list)
        return before

    def _end(self, before: dict[str, list[Any]], after: Mapping[str, list[Any]] | None) -> None:
        """Go on with the names before, and those of `after`; with what was found where the end was reached within."""
        for name, contexts in (self.found if self.ended else after or {}).items():
            before[name] += contexts
        self.found = before


def _written(names: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    stores = {name: [c for c in contexts if kind(c) == "Store"] for name, contexts in names.items()}
    return {name: found for name, found in stores.items() if found}


class NodeTestTransformer(ast.NodeTransformer):
    """Puts the results of ops in place of a condition's ``and``, ``or`` and ``not``.

    Args:
        ast_node: the condition, a tree of ``ast`` or ``gast``.
        compare_nodes_with_tensor: the comparisons in it that are of variables; others become constants.
        node_to_wrapper_map: of each node, its wrapper (see ``StaticAnalysisVisitor``).
    """

    def __init__(
        self,
        ast_node: Any,
        compare_nodes_with_tensor: Iterable[Any] | None = None,
        node_to_wrapper_map: Mapping[Any, Any] | None = None,
    ) -> None:
        self.ast_root = ast_node
        self._compared = set(compare_nodes_with_tensor or ())
        self._wrappers = node_to_wrapper_map or {}
        self._assigned: list[Any] = []

    def transform(self) -> Any:
        """The condition as a name or a comparison; ``get_new_assign_nodes`` are the statements before it."""
        root = self.ast_root
        return self.visit(root) if _is_candidate(root) else self._assign("bool_tensor", _CAST, root)

    def get_new_assign_nodes(self) -> list[Any]:
        """The assignments that a transformed condition needs before it."""
        return self._assigned

    def set_compare_nodes_with_tensor(self, nodes_set: Iterable[Any]) -> set[Any]:
        """Say which comparisons are of variables; returns them."""
        self._compared = set(nodes_set)
        return self._compared

    def visit(self, node: Any) -> Any:
        """The tree in place of a node."""
        return getattr(self, f"visit_{kind(node)}", self.generic_visit)(node)

    def visit_Call(self, node: Any) -> Any:
        """``x.numpy()`` is ``x``."""
        if kind(node.func) == "Attribute" and node.func.attr == "numpy":
            node = node.func.value
        return self.generic_visit(node)

    def visit_UnaryOp(self, node: Any) -> Any:
        """``not`` is an op."""
        self.generic_visit(node)
        if kind(node.op) != "Not":
            return node
        return self._assign("logic_not", "fluid.layers.logical_not({})", node.operand)

    def visit_BoolOp(self, node: Any) -> Any:
        """``and`` and ``or`` are ops of two each."""
        node.values = [v if _is_candidate(v) else self._assign("bool_tensor", self._form(v), v) for v in node.values]
        self.generic_visit(node)
        word = kind(node.op).lower()
        found = node.values[0]
        for value in node.values[1:]:
            found = self._assign(f"logic_{word}", f"fluid.layers.logical_{word}(x={{}}, y={{}})", found, value)
        return found

    def visit_Compare(self, node: Any) -> Any:
        """A comparison of what are no variables is a constant."""
        if compare_with_none(node) or node not in self._compared:
            return self._assign("bool_tensor", _CONSTANT, node)
        return self.generic_visit(node)

    def _form(self, node: Any) -> str:
        wrapper = self._wrappers.get(node)
        tensor = wrapper is not None and wrapper.node_var_type & NodeVarType.TENSOR_TYPES
        return _CAST if tensor else _CONSTANT

    def _assign(self, prefix: str, form: str, *nodes: Any) -> Any:
        """Assign an expression of nodes to a new name; returns that."""
        name = unique_name.generate(prefix)
        text = f"{name} = {form.format(*map(source_of, nodes))}"
        self._assigned.append(back(ast.parse(text).body[0], self.ast_root))
        return back(ast.parse(name, mode="eval").body, self.ast_root)


_CAST = "fluid.layers.cast(x={}, dtype='bool')"
_CONSTANT = "fluid.layers.fill_constant(shape=[1], dtype='bool', value=bool({}))"


def _is_candidate(node: Any) -> bool:
    """Whether a node may depend on variables."""
    return kind(node) in _CANDIDATES or ".numpy()" in source_of(node)


class IfConditionVisitor:
    """Whether a condition is one of variables, and its ops.

    Args:
        node: the condition, a tree of ``ast`` or ``gast``.
        static_analysis_visitor: what is known of the function around; by default of the condition alone.
        node_var_type_map: the types of names, where they are known.
    """

    def __init__(
        self,
        node: Any,
        static_analysis_visitor: StaticAnalysisVisitor | None = None,
        node_var_type_map: Mapping[str, set[int]] | None = None,
    ) -> None:
        self.node = node
        self.visitor = IsControlFlowVisitor(node, static_analysis_visitor, node_var_type_map)
        self.transformer = NodeTestTransformer(node, node_to_wrapper_map=self.visitor.node_to_wrapper_map)
        self._found = False

    def is_control_flow(self) -> bool:
        """Whether it is of variables."""
        self._found = self.visitor.transform()
        return self._found

    def transform(self) -> tuple[Any, list[Any]]:
        """(the condition, the assignments before it); as it is unless ``is_control_flow`` said that it is one."""
        if not self._found:
            return self.node, []
        self.transformer.set_compare_nodes_with_tensor(self.visitor.get_compare_nodes_with_tensor())
        return self.transformer.transform(), self.transformer.get_new_assign_nodes()
