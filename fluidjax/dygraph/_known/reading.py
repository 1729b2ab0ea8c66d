"""Functions rewritten so that a watch sees what they read and call (see ``watch``)."""

from __future__ import annotations

import ast
import types
from collections.abc import Sequence
from typing import Any

from fluidjax.to_static.source import STAGED, NoSource, definition, is_current, rebuilt

_STATEMENTS = (
    ast.Assign, ast.AnnAssign, ast.AugAssign, ast.For, ast.While, ast.If, ast.Return, ast.Expr, ast.Pass, ast.Break,
    ast.Continue, ast.Raise, ast.Assert,
)  # fmt: skip
_EXPRESSIONS = (
    ast.Constant, ast.Name, ast.Attribute, ast.Call, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp,
    ast.Subscript, ast.Slice, ast.Tuple, ast.List, ast.ListComp, ast.Starred, ast.Dict,
    ast.JoinedStr, ast.FormattedValue,
)  # fmt: skip
_PLAIN = (
    ast.arguments, ast.arg, ast.keyword, ast.comprehension, ast.expr_context, ast.operator, ast.unaryop, ast.boolop,
    ast.cmpop,
)  # fmt: skip


class Unreadable(TypeError):
    """A function that cannot be watched."""


def watched(function: types.FunctionType, watch: Any) -> types.FunctionType:
    """The function with everything that it reads and calls passed through a watch. Raises Unreadable."""
    if function.__code__.co_flags & _GENERATOR:
        raise Unreadable
    try:
        node = definition(function)
    except NoSource as error:
        raise Unreadable from error
    if not is_current(function):
        raise Unreadable
    for inner in node.body:
        for each in ast.walk(inner):
            if not isinstance(each, (*_STATEMENTS, *_EXPRESSIONS, *_PLAIN)) or _is_private(each):
                raise Unreadable
    code = function.__code__
    local = {*code.co_varnames, *code.co_cellvars, *_targets(node)} - set(code.co_freevars)
    if not _names(code).isdisjoint(_REFUSED | (_targets(node) - {*code.co_varnames})):
        raise Unreadable
    writer = _Writer(local, frozenset(code.co_freevars), code.co_varnames[:1])
    node.body = [*writer.collected(node.args), *[writer.visit(each) for each in node.body]]
    try:
        return rebuilt(function, ast.fix_missing_locations(node), watch)
    except (SyntaxError, StopIteration, KeyError) as error:
        raise Unreadable from error


_GENERATOR = 0x20 | 0x80 | 0x200  # of a code's flags: generators, and all that is asynchronous


# What asks for the frame it is called from, and what is never the same twice.
_REFUSED = {
    "locals", "globals", "vars", "dir", "eval", "exec", "breakpoint", "print", "input", "open",
}  # fmt: skip


def _targets(node: ast.AST) -> set[str]:
    """The names that comprehensions assign."""
    parts = [part.target for each in ast.walk(node) if isinstance(each, ast.ListComp) for part in each.generators]
    return {name.id for part in parts for name in ast.walk(part) if isinstance(name, ast.Name)}


def _names(code: types.CodeType) -> set[str]:
    """The global names and attributes in a function, comprehensions included."""
    inner = [_names(each) for each in code.co_consts if isinstance(each, types.CodeType)]
    return {*code.co_names, *code.co_freevars}.union(*inner) - {*code.co_cellvars, *code.co_varnames}


def _is_private(node: ast.AST) -> bool:
    """Whether a class would write a name otherwise, or it is one of Python's own."""
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return name.startswith("__")


class _Writer(ast.NodeTransformer):
    """Writes the calls of the watch into a tree.

    Args:
        local: the names that the function assigns.
        free: those of enclosing functions.
        first: the first argument's, if there is one.
    """

    def __init__(self, local: set[str], free: frozenset[str], first: Sequence[str]) -> None:
        self._local, self._free, self._first = local, free, first

    def _call(self, what: str, at: ast.AST, *arguments: Any) -> Any:
        function = ast.Attribute(ast.Name(STAGED, ast.Load()), what, ast.Load())
        given: list[Any] = [each if isinstance(each, ast.AST) else ast.Constant(each) for each in arguments]
        return ast.copy_location(ast.Call(function, given, []), at)

    def collected(self, arguments: ast.arguments) -> list[ast.stmt]:
        """``*args`` and ``**kwargs`` are containers that the call made."""
        found: list[ast.stmt] = []
        for each in (arguments.vararg, arguments.kwarg):
            if each is not None:
                value = self._call("fresh", each, ast.Name(each.arg, ast.Load()))
                found.append(ast.copy_location(ast.Assign([ast.Name(each.arg, ast.Store())], value), each))
        return found

    # What is read.

    def visit_Name(self, node: ast.Name) -> Any:
        """A name of the module or of Python, or one of a function around this one; see ``watch``."""
        if not isinstance(node.ctx, ast.Load) or node.id in self._local:
            return node
        if node.id == "super":  # it looks at the function that calls it
            raise Unreadable
        return self._call("free" if node.id in self._free else "outer", node, node.id, node)

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        """See ``Watch.attribute``."""
        self.generic_visit(node)
        return self._call("attribute", node, node.value, node.attr) if isinstance(node.ctx, ast.Load) else node

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        """See ``Watch.item``."""
        self.generic_visit(node)
        return self._call("item", node, node.value, node.slice) if isinstance(node.ctx, ast.Load) else node

    def visit_Slice(self, node: ast.Slice) -> Any:
        """A call of ``slice``."""
        self.generic_visit(node)
        parts = [ast.Constant(None) if part is None else part for part in (node.lower, node.upper, node.step)]
        return self._call("slice", node, *parts)

    # What is done.

    def visit_Call(self, node: ast.Call) -> Any:
        """See ``Watch.call``."""
        if isinstance(node.func, ast.Name) and node.func.id == "super" and "super" not in self._local | self._free:
            return self._super(node)
        self.generic_visit(node)
        for k, each in enumerate(node.args):
            if isinstance(each, ast.Starred):
                node.args[k] = ast.Starred(self._call("each", each, each.value), ast.Load())
        for keyword in node.keywords:
            if keyword.arg is None:
                keyword.value = self._call("named", keyword.value, keyword.value)
        function = ast.copy_location(ast.Attribute(ast.Name(STAGED, ast.Load()), "call", ast.Load()), node)
        return ast.copy_location(ast.Call(function, [node.func, *node.args], node.keywords), node)

    def _super(self, node: ast.Call) -> Any:
        """See ``Watch.parent``."""
        given = [self.visit(each) for each in node.args]
        if not given and "__class__" in self._free and self._first:
            here = self._call("free", node, "__class__", ast.Name("__class__", ast.Load()))
            given = [here, ast.Name(self._first[0], ast.Load())]
        if len(given) != 2 or node.keywords or any(isinstance(each, ast.Starred) for each in given):
            raise Unreadable
        return self._call("parent", node, self._call("outer", node, "super", node.func), *given)

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        """See ``Watch.operate``."""
        self.generic_visit(node)
        return self._call("operate", node, type(node.op).__name__, node.left, node.right)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        """See ``Watch.truth`` and ``Watch.operate``."""
        self.generic_visit(node)
        if isinstance(node.op, ast.Not):
            node.operand = self._call("truth", node, node.operand)
            return node
        return self._call("operate", node, type(node.op).__name__, node.operand)

    def visit_Compare(self, node: ast.Compare) -> Any:
        """See ``Watch.operate``; of two operands."""
        self.generic_visit(node)
        if len(node.ops) > 1:
            raise Unreadable
        if isinstance(node.ops[0], (ast.Is, ast.IsNot)):
            return node
        return self._call("operate", node, type(node.ops[0]).__name__, node.left, node.comparators[0])

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        """See ``Watch.truth``."""
        self.generic_visit(node)
        node.values = [*[self._call("truth", each, each) for each in node.values[:-1]], node.values[-1]]
        return node

    def visit_IfExp(self, node: Any) -> Any:
        """See ``Watch.truth``."""
        self.generic_visit(node)
        node.test = self._call("truth", node, node.test)
        return node

    visit_If = visit_While = visit_Assert = visit_IfExp

    def visit_For(self, node: ast.For) -> Any:
        """See ``Watch.each``."""
        self.generic_visit(node)
        node.iter = self._call("each", node.iter, node.iter)
        return node

    def visit_comprehension(self, node: ast.comprehension) -> Any:
        """See ``Watch.each``."""
        self.generic_visit(node)
        node.iter = self._call("each", node.iter, node.iter)
        node.ifs = [self._call("truth", test, test) for test in node.ifs]
        return node

    def visit_List(self, node: ast.List) -> Any:
        """See ``Watch.fresh``."""
        self.generic_visit(node)
        return self._call("fresh", node, node) if isinstance(node.ctx, ast.Load) else node

    def visit_ListComp(self, node: Any) -> Any:
        """See ``Watch.fresh``."""
        self.generic_visit(node)
        return self._call("fresh", node, node)

    visit_Dict = visit_ListComp

    def visit_FormattedValue(self, node: ast.FormattedValue) -> Any:
        """See ``Watch.plain``."""
        self.generic_visit(node)
        node.value = self._call("plain", node.value, node.value)
        return node

    def visit_Tuple(self, node: ast.Tuple) -> Any:
        """As it is; what is unpacked into it is looked at."""
        self.generic_visit(node)
        for k, each in enumerate(node.elts):
            if isinstance(each, ast.Starred):
                node.elts[k] = ast.copy_location(ast.Starred(self._call("each", each, each.value), each.ctx), each)
        return node

    def visit_Starred(self, node: ast.Starred) -> Any:
        """Only where it is read."""
        if not isinstance(node.ctx, ast.Load):
            raise Unreadable
        return self.generic_visit(node)

    # What is assigned.

    def visit_Assign(self, node: ast.Assign) -> Any:
        """See ``Watch.each`` and ``Watch.store``."""
        self.generic_visit(node)
        if any(isinstance(target, (ast.Tuple, ast.List)) for target in node.targets):
            node.value = self._call("each", node.value, node.value)
        if len(node.targets) > 1:
            if all(isinstance(target, ast.Name) for target in node.targets):
                return node
            raise Unreadable
        target = node.targets[0]
        if isinstance(target, ast.Attribute):
            return ast.copy_location(ast.Expr(self._call("store", node, target.value, target.attr, node.value)), node)
        if isinstance(target, ast.Subscript):
            return ast.copy_location(ast.Expr(self._call("put", node, target.value, target.slice, node.value)), node)
        _only_names(target)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        """Without its annotation."""
        if node.value is None or not isinstance(node.target, ast.Name):
            raise Unreadable
        return self.visit_Assign(ast.copy_location(ast.Assign([node.target], node.value), node))

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        """See ``Watch.operate``."""
        if not isinstance(node.target, ast.Name) or node.target.id not in self._local:
            raise Unreadable
        self.generic_visit(node)
        before = ast.copy_location(ast.Name(node.target.id, ast.Load()), node)
        value = self._call("operate", node, "I" + type(node.op).__name__, before, node.value)
        return ast.copy_location(ast.Assign([node.target], value), node)


def _only_names(target: ast.AST) -> None:
    """Raise Unreadable unless a target is made of names, two deep at most one within another."""
    if isinstance(target, (ast.Tuple, ast.List)):
        if not all(isinstance(each, ast.Name) for each in target.elts):
            raise Unreadable
    elif not isinstance(target, ast.Name):
        raise Unreadable
