"""Static analysis of the kinds of values that names of a function may hold.

The converter does not use it, since converted code inspects actual values; it exists for tools that analyse sources.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterable
from typing import Any

from fluidjax.dygraph.dygraph_to_static.trees import kind, source_of

__all__ = ["AstNodeWrapper", "NodeVarType", "StaticAnalysisVisitor"]


class NodeVarType:
    """The kinds of values a node may have."""

    ERROR = -1
    UNKNOWN = 0
    STATEMENT = 1
    CALLABLE = 2
    NONE = 100
    BOOLEAN = 101
    INT = 102
    FLOAT = 103
    STRING = 104
    TENSOR = 105
    NUMPY_NDARRAY = 106
    LIST = 200
    SET = 201
    DICT = 202
    PADDLE_DYGRAPH_API = 300
    PADDLE_CONTROL_IF = 301
    PADDLE_CONTROL_WHILE = 302
    PADDLE_CONTROL_FOR = 303
    PADDLE_RETURN_TYPES = 304
    TENSOR_TYPES = {TENSOR, PADDLE_RETURN_TYPES}  # noqa: RUF012  (a set, as in Fluid)

    @staticmethod
    def binary_op_output_type(in_type1: int, in_type2: int) -> int:
        """The result type of an operator on two types: the wider of two numbers, or the array or tensor."""
        if in_type1 == in_type2:
            return in_type1
        if NodeVarType.UNKNOWN in (in_type1, in_type2):
            return in_type1 or in_type2
        low, high = sorted((in_type1, in_type2))
        numbers = (NodeVarType.BOOLEAN, NodeVarType.INT, NodeVarType.FLOAT)
        arrays = (NodeVarType.TENSOR, NodeVarType.NUMPY_NDARRAY)
        return high if low in numbers and high in numbers + arrays else NodeVarType.UNKNOWN


class AstNodeWrapper:
    """A node with its position in the tree.

    Attributes:
        node: the node.
        parent: wrapper of the parent node, None for the root.
        children: wrappers of the child nodes, in order.
        node_var_type: the set of kinds its value may have.
    """

    def __init__(self, node: Any) -> None:
        self.node = node
        self.parent: AstNodeWrapper | None = None
        self.children: list[AstNodeWrapper] = []
        self.node_var_type = {NodeVarType.UNKNOWN}


class AstVarScope:
    """The names of a function and their types."""

    SCOPE_TYPE_SCRIPT, SCOPE_TYPE_FUNCTION, SCOPE_TYPE_CLASS = range(3)

    def __init__(
        self, scope_name: str = "", scope_type: int = SCOPE_TYPE_SCRIPT, parent_scope: AstVarScope | None = None
    ) -> None:
        self.scope_name, self.scope_type, self.parent_scope = scope_name, scope_type, parent_scope
        self.sub_scopes: list[AstVarScope] = []
        self.types: dict[str, set[int]] = {}
        if parent_scope is not None:
            parent_scope.sub_scopes.append(self)

    def add_var_type(self, var_name: str, node_var_type: Iterable[int]) -> None:
        """Add to the kinds a name may hold."""
        known = self.get_var_type(var_name) - {NodeVarType.UNKNOWN}
        self.types[var_name] = known | set(node_var_type)

    def set_var_type(self, var_name: str, node_var_type: Iterable[int]) -> None:
        """Set the kinds a name may hold."""
        self.types[var_name] = set(node_var_type)

    def get_var_type(self, var_name: str) -> set[int]:
        """The kinds a name may hold, in this scope or an enclosing one."""
        scope: AstVarScope | None = self
        while scope is not None and var_name not in scope.types:
            scope = scope.parent_scope
        return {NodeVarType.UNKNOWN} if scope is None else scope.types[var_name]


class AstVarEnv:
    """A tree of scopes with a current one."""

    def __init__(self) -> None:
        self.cur_scope = AstVarScope()

    def enter_scope(self, scope_name: str, scope_type: int) -> AstVarScope:
        """Enter a new scope."""
        self.cur_scope = AstVarScope(scope_name, scope_type, self.cur_scope)
        return self.cur_scope

    def exit_scope(self) -> AstVarScope:
        """Return to the enclosing scope."""
        self.cur_scope = self.get_parent_scope()
        return self.cur_scope

    def get_parent_scope(self) -> AstVarScope:
        """The scope enclosing the current one."""
        parent = self.cur_scope.parent_scope
        assert parent is not None, "the outermost scope has none around it: call enter_scope first"
        return parent

    def get_scope_var_type(self) -> dict[str, set[int]]:
        """The kinds held by each name of the current scope."""
        return dict(self.cur_scope.types)


class StaticAnalysisVisitor:
    """Wraps the nodes of a tree and infers the kinds of their values.

    Args:
        ast_root: an ``ast`` or ``gast`` tree; if None, call ``run`` later.
    """

    def __init__(self, ast_root: Any = None) -> None:
        if ast_root is not None:
            self.run(ast_root)

    def run(self, ast_root: Any) -> None:
        """Analyse a tree."""
        self._root: AstNodeWrapper | None = None
        self._around: list[AstNodeWrapper] = []
        self._wrappers: dict[Any, AstNodeWrapper] = {}
        self._env = AstVarEnv()
        self.dfs_visit(ast_root)

    def get_node_wrapper_root(self) -> AstNodeWrapper | None:
        """The wrapper of the root."""
        return self._root

    def get_node_to_wrapper_map(self) -> dict[Any, AstNodeWrapper]:
        """Maps nodes to their wrappers."""
        return self._wrappers

    def get_var_env(self) -> AstVarEnv:
        """The scopes, with the outermost as the current one."""
        return self._env

    def dfs_visit(self, node: Any) -> set[int]:
        """Wrap a node and its descendants; returns the kinds its value may have."""
        wrapper = self._wrappers.setdefault(node, AstNodeWrapper(node))  # trees share their nodes Load, Store, ...
        self._root = self._root or wrapper
        if self._around:
            wrapper.parent = self._around[-1]
            wrapper.parent.children.append(wrapper)
        self._around.append(wrapper)
        for child in ast.iter_child_nodes(node):
            if kind(child) in ("FunctionDef", "AsyncFunctionDef"):
                self._env.enter_scope(child.name, AstVarScope.SCOPE_TYPE_FUNCTION)  # type: ignore[attr-defined]
                self.dfs_visit(child)
                self._env.exit_scope()
            else:
                self.dfs_visit(child)
        self._around.pop()
        wrapper.node_var_type = self._type_of(wrapper)
        return wrapper.node_var_type

    def _type_of(self, wrapper: AstNodeWrapper) -> set[int]:
        find = getattr(self, f"_of_{kind(wrapper.node)}", None)
        fixed = _FIXED.get(kind(wrapper.node), NodeVarType.STATEMENT)
        return {fixed} if find is None else find(wrapper.node, wrapper)

    def _known(self, node: Any) -> set[int]:
        return self._wrappers[node].node_var_type

    def _of_Constant(self, node: Any, _: AstNodeWrapper) -> set[int]:
        return {_CONSTANTS.get(type(node.value), NodeVarType.UNKNOWN)}

    def _of_UnaryOp(self, node: Any, _: AstNodeWrapper) -> set[int]:
        return self._known(node.operand)

    def _of_BinOp(self, node: Any, _: AstNodeWrapper) -> set[int]:
        join = NodeVarType.binary_op_output_type
        return {join(one, two) for one in self._known(node.left) for two in self._known(node.right)}

    def _of_Assign(self, node: Any, _: AstNodeWrapper) -> set[int]:
        found = self._known(node.value)
        for target in node.targets:
            if kind(target) == "Name":
                self._wrappers[target].node_var_type = found
                self._env.cur_scope.set_var_type(target.id, found)
        return found

    def _of_Name(self, node: Any, wrapper: AstNodeWrapper) -> set[int]:
        parent = wrapper.parent
        if parent is not None and kind(parent.node) == "arguments":
            return self._parameter(node, node.id, parent.node)
        return self._env.cur_scope.get_var_type(node.id)

    def _of_arg(self, node: Any, wrapper: AstNodeWrapper) -> set[int]:
        return {NodeVarType.UNKNOWN} if wrapper.parent is None else self._parameter(node, node.arg, wrapper.parent.node)

    def _parameter(self, node: Any, name: str, arguments: Any) -> set[int]:
        """The kinds implied by a parameter's default."""
        with_default = arguments.args[len(arguments.args) - len(arguments.defaults) :]
        default = dict(zip(with_default, arguments.defaults, strict=True)).get(node)
        if default is None or kind(default) != "Constant":
            return {NodeVarType.UNKNOWN}
        found = {_CONSTANTS.get(type(default.value), NodeVarType.UNKNOWN)}
        self._env.cur_scope.set_var_type(name, found)
        return found

    def _of_Return(self, node: Any, _: AstNodeWrapper) -> set[int]:
        if node.value is None:
            return {NodeVarType.NONE}
        found = self._known(node.value)
        self._env.get_parent_scope().add_var_type(self._env.cur_scope.scope_name, found)
        return found

    def _of_Call(self, node: Any, _: AstNodeWrapper) -> set[int]:
        called = source_of(node.func)
        module = module_of(called)
        if module.startswith("fluidjax.dygraph") and called.endswith(".to_variable"):
            return {NodeVarType.TENSOR}
        if module.startswith("fluidjax"):
            return {NodeVarType.PADDLE_RETURN_TYPES}
        if called.startswith(("np.", "numpy.")):
            return {NodeVarType.NUMPY_NDARRAY}
        return self._env.cur_scope.get_var_type(called) if kind(node.func) == "Name" else {NodeVarType.STATEMENT}


_CONSTANTS = {
    type(None): NodeVarType.NONE,
    bool: NodeVarType.BOOLEAN,
    int: NodeVarType.INT,
    float: NodeVarType.FLOAT,
    str: NodeVarType.STRING,
}
_FIXED = {
    "BoolOp": NodeVarType.BOOLEAN,
    "Compare": NodeVarType.BOOLEAN,
    "Dict": NodeVarType.DICT,
    "Set": NodeVarType.SET,
}
# What Fluid's scripts call its modules, as far as the source of one function can tell.
_ROOTS = {
    "paddle": "fluidjax.paddle",
    "paddle.fluid": "fluidjax",
    "fluid": "fluidjax",
    "layers": "fluidjax.layers",
    "dygraph": "fluidjax.dygraph",
    "to_variable": "fluidjax.dygraph.to_variable",
}


def module_of(called: str) -> str:
    """The module that defines what a dotted name refers to, or "" if unknown."""
    for root in sorted(_ROOTS, key=len, reverse=True):
        if called == root or called.startswith(root + "."):
            found: Any = importlib.import_module("fluidjax")
            for part in (_ROOTS[root] + called[len(root) :]).split(".")[1:]:
                found = getattr(found, part, None)
            module = inspect.getmodule(found)
            return module.__name__ if module is not None else ""
    return ""
