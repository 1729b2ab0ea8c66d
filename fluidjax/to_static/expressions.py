"""Expressions in converted code: calls, and whatever depends on a truth value, go through ``staged``."""

from __future__ import annotations

import ast
from typing import Any

from fluidjax.to_static.source import STAGED

# Functions that inspect the calling frame.
_FRAME = frozenset(("super", "locals", "globals", "vars", "dir", "eval", "exec", "__import__"))
_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
}


def staged(name: str, *args: ast.expr, at: ast.AST) -> ast.Call:
    """A call of ``staged.name``."""
    function = ast.Attribute(ast.Name(STAGED, ast.Load()), name, ast.Load())
    node = ast.Call(function, list(args), [])
    for inner in (function.value, function, node):
        ast.copy_location(inner, at)
    return node


def later(value: ast.expr) -> ast.expr:
    """``lambda: value``, or just the value if evaluating it has no effect."""
    if isinstance(value, ast.Constant):
        pass
    arguments = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.copy_location(ast.Lambda(arguments, value), value)


def _binds(node: ast.AST) -> bool:
    """Whether an expression assigns names, or yields or awaits, so that it cannot move into a lambda."""
    return any(isinstance(n, (ast.NamedExpr, ast.Yield, ast.YieldFrom, ast.Await)) for n in ast.walk(node))


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


class Expressions(ast.NodeTransformer):
    """Rewrites expressions.

    Args:
        of_class: the class whose private names are mangled.
        receiver: the first parameter of the function, for ``super()``.
    """

    def __init__(self, of_class: str | None, receiver: str | None):
        self.of_class, self.receiver = of_class, receiver

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        """``a and b`` -> ``and_(lambda: a, lambda: b)``."""
        self.generic_visit(node)
        if any(map(_binds, node.values)):
            return node
        name = "and_" if isinstance(node.op, ast.And) else "or_"
        return staged(name, *map(later, node.values), at=node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        """``not a`` -> ``not_(a)``."""
        self.generic_visit(node)
        return staged("not_", node.operand, at=node) if isinstance(node.op, ast.Not) else node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        """``a if t else b`` -> ``either(t, lambda: a, lambda: b)``."""
        self.generic_visit(node)
        if _binds(node.body) or _binds(node.orelse):
            return node
        return staged("either", node.test, later(node.body), later(node.orelse), at=node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """``a < b < c`` -> ``chain(a, "<", lambda: b, "<", lambda: c)``, ``a is None`` -> ``is_none(a)``."""
        self.generic_visit(node)
        if len(node.ops) == 1 and isinstance(node.ops[0], (ast.Is, ast.IsNot)) and _is_none(node.comparators[0]):
            asked = staged("is_none", node.left, at=node)
            return asked if isinstance(node.ops[0], ast.Is) else staged("not_", asked, at=node)
        if len(node.ops) == 1 or any(map(_binds, node.comparators)):
            return node
        signs = [ast.copy_location(ast.Constant(_COMPARISONS[type(op)]), node) for op in node.ops]
        pairs = [item for sign, value in zip(signs, node.comparators, strict=True) for item in (sign, later(value))]
        return staged("chain", node.left, *pairs, at=node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """``f(x)`` -> ``call(f)(x)``."""
        if isinstance(node.func, ast.Name) and node.func.id in _FRAME:
            return self._frame_call(node)
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "numpy" and not node.args and not node.keywords:
            return staged("numpy", node.func.value, at=node)
        node.func = staged("call", node.func, at=node.func)
        return node

    def _frame_call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if node.func.id == "super" and not node.args and self.receiver is not None:  # type: ignore[attr-defined]
            names = [ast.Name("__class__", ast.Load()), ast.Name(self.receiver, ast.Load())]
            node.args = [ast.copy_location(name, node) for name in names]
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """``x.shape`` -> ``shape(x)``."""
        self.generic_visit(node)
        node.attr = self._mangled(node.attr)
        if node.attr == "shape" and isinstance(node.ctx, ast.Load):
            return staged("shape", node.value, at=node)
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """A name, mangled if it is private."""
        node.id = self._mangled(node.id)
        return node

    def _mangled(self, name: str) -> str:
        owner = (self.of_class or "").lstrip("_")
        private = name.startswith("__") and not name.endswith("__") and "." not in name
        return f"_{owner}{name}" if private and owner else name

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """``x[i]`` -> ``item(x, i)``."""
        self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load) or _plain_index(node.slice):
            return node
        index = _as_value(node.slice)
        return node if index is None else staged("item", node.value, index, at=node)

    def visit_ListComp(self, node: ast.ListComp) -> Any:
        """Iterates over ``listed(...)``."""
        return self._comprehension(node)

    def visit_SetComp(self, node: ast.SetComp) -> Any:
        """Iterates over ``listed(...)``."""
        return self._comprehension(node)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> Any:
        """Iterates over ``listed(...)``."""
        return self._comprehension(node)

    def visit_DictComp(self, node: ast.DictComp) -> Any:
        """Iterates over ``listed(...)``."""
        return self._comprehension(node)

    def _comprehension(self, node: Any) -> Any:
        self.generic_visit(node)
        for generator in node.generators:
            generator.iter = staged("listed", generator.iter, at=generator.iter)
        return node


def _plain_index(index: ast.expr) -> bool:
    return isinstance(index, ast.Constant) or (
        isinstance(index, ast.UnaryOp) and isinstance(index.operand, ast.Constant)
    )


def _as_value(index: ast.expr) -> ast.expr | None:
    """The index as an expression: slices become calls of ``slice``."""
    if isinstance(index, ast.Slice):
        bounds = [ast.Constant(None) if b is None else b for b in (index.lower, index.upper, index.step)]
        return staged("slice", *[ast.copy_location(b, index) for b in bounds], at=index)
    if isinstance(index, ast.Tuple):
        parts = [_as_value(part) for part in index.elts]
        if any(isinstance(part, ast.Starred) for part in index.elts):
            return None
        return ast.copy_location(ast.Tuple([p for p in parts if p is not None], ast.Load()), index)
    return index
