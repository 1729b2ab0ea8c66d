"""Statements in converted code: branches and loops become functions that ``staged`` runs.

::

    if a > 0:                def body_0():
        y = x                    nonlocal y
    else:              ->        y = x
        y = -x               def otherwise_0():
                                 nonlocal y
                                 y = -x
                             def get_0():
                                 return (y,)
                             def set_0(state):
                                 nonlocal y
                                 (y,) = state
                             _jst.if_(a > 0, body_0, otherwise_0, get_0, set_0, ('y',), ('y',))

Names without a value hold ``_jst.unset(name)``. All nodes keep the line numbers of the user's file.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from fluidjax.to_static.expressions import Expressions, later, staged
from fluidjax.to_static.jumps import lower_jumps
from fluidjax.to_static.source import function_of
from fluidjax.to_static.symbols import assigned, bound, note_live, own_nodes, parameters

_ASYNC = (ast.Yield, ast.YieldFrom, ast.Await)


def rewrite(function: ast.FunctionDef, of_class: str | None, free: Iterable[str] = ()) -> ast.FunctionDef:
    """The converted function; `of_class`: the class that defines it, for a method; `free`: its closure's names."""
    first = [*function.args.posonlyargs, *function.args.args]
    return Statements(of_class, first[0].arg if first else None, free).function(function)


class Statements(Expressions):
    """Rewrites the statements of a function and of its nested functions."""

    def __init__(self, of_class: str | None, receiver: str | None, free: Iterable[str] = ()):
        super().__init__(of_class, receiver)
        self.around = set(free)  # names bound by functions around the present one
        self.taken: set[str] = set()  # suffixes found in the user's own names
        self.numbers = (n for n in itertools.count() if str(n) not in self.taken)
        self.carried: set[str] = set()
        self.foreign: dict[str, str] = {}  # names that the function changes and does not bind: global or nonlocal

    # --- functions ----------------------------------------------------------------------------------------------------

    def function(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """Rewrite a function in a scope of its own."""
        if any(isinstance(n, _ASYNC) for n in own_nodes(node.body)):
            return node
        outer = self.carried, self.foreign, self.around
        self.carried, self.foreign = set(), self._foreign(node)
        self.around = (self.around | bound(node)) - {n for n, kind in self.foreign.items() if kind == "global"}
        lower_jumps(node)
        note_live(node)
        self.taken |= {n.id.rpartition("_")[2] for n in ast.walk(node) if isinstance(n, ast.Name)}
        self.taken |= {a.arg.rpartition("_")[2] for a in ast.walk(node) if isinstance(a, ast.arg)}
        node.body = self._block(node.body)
        unset = self.carried - parameters(node) - set(self.foreign)
        start = int(_is_doc(node.body[0]))
        node.body[start:start] = [_unset(name, node.body[0]) for name in sorted(unset)]
        self.carried, self.foreign, self.around = outer
        return node

    def _foreign(self, node: ast.FunctionDef) -> dict[str, str]:
        """Names that a function declares global or nonlocal, and those of which it changes only items."""
        declared = {
            name: type(n).__name__.lower()
            for n in own_nodes(node.body)
            if isinstance(n, (ast.Global, ast.Nonlocal))
            for name in n.names
        }
        changed = {s for s in assigned(node.body) if "." not in s} - bound(node)
        return {name: "nonlocal" if name in self.around else "global" for name in changed} | declared

    def _block(self, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
        done: list[ast.stmt] = []
        for statement in statements:
            result = self.visit(statement)
            done += result if isinstance(result, list) else [] if result is None else [result]
        return done

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        """A nested function."""
        node.decorator_list = [self.visit(d) for d in node.decorator_list]
        node.args = self.visit(node.args)
        return self.function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> Any:
        """Left alone."""
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        """Left alone: its methods are converted when they are called."""
        return node

    def visit_Return(self, node: ast.Return) -> Any:
        """``return x`` -> ``return returned(x)``."""
        self.generic_visit(node)
        if node.value is not None:
            node.value = staged("returned", node.value, at=node)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        """An assignment without its annotation, which is not allowed beside nonlocal."""
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        return self.visit(ast.copy_location(ast.Assign([node.target], node.value), node))

    def visit_Delete(self, node: ast.Delete) -> Any:
        """``del x`` -> ``x = unset("x")``."""
        names = [t for t in node.targets if isinstance(t, ast.Name)]
        others = [self.visit(t) for t in node.targets if not isinstance(t, ast.Name)]
        kept = [ast.copy_location(ast.Delete(others), node)] if others else []
        return [*kept, *(_unset(name.id, node) for name in names)]

    def visit_Global(self, node: ast.Global) -> Any:
        """Left alone."""
        return node

    def visit_Nonlocal(self, node: ast.Nonlocal) -> Any:
        """Left alone."""
        return node

    def visit_Assert(self, node: ast.Assert) -> Any:
        """``assert a, b`` -> ``assert_(a, lambda: b)``."""
        self.generic_visit(node)
        message = later(node.msg or ast.copy_location(ast.Constant(None), node))
        return ast.copy_location(ast.Expr(staged("assert_", node.test, message, at=node)), node)

    # --- branches and loops -------------------------------------------------------------------------------------------

    def visit_If(self, node: ast.If) -> Any:
        """See the module."""
        symbols = assigned([node])
        number = next(self.numbers)
        test = self.visit(node.test)
        body = self._part("body", number, node.body, symbols, node)
        otherwise = self._part("otherwise", number, node.orelse, symbols, node)
        return [body, otherwise, *self._run("if_", number, [test, _name(body), _name(otherwise)], symbols, node)]

    def visit_While(self, node: ast.While) -> Any:
        """``while a: ...`` -> ``while_(test, body, ...)``."""
        symbols = assigned([node])
        number = next(self.numbers)
        asked = ast.copy_location(ast.Return(node.test), node.test)
        test = self._part("test", number, [asked], symbols, node)
        body = self._part("body", number, node.body, symbols, node)
        return [test, body, *self._run("while_", number, [_name(test), _name(body)], symbols, node)]

    def visit_For(self, node: ast.For) -> Any:
        """``for x in a: ...`` -> ``for_(a, body, ...)``."""
        symbols = assigned([node])
        number = next(self.numbers)
        items = self.visit(node.iter)
        item = f"item_{number}"
        given = ast.copy_location(ast.Name(item, ast.Load()), node)
        take = ast.copy_location(ast.Assign([node.target], given), node)
        body = self._part("body", number, [take, *node.body], symbols, node, item)
        flag = getattr(node, "stop", None)
        stop = later(_at(ast.Name(flag, ast.Load()) if flag else ast.Constant(False), node))
        return [body, *self._run("for_", number, [items, _name(body), stop], symbols, node)]

    def visit_Try(self, node: ast.Try) -> Any:
        """The statement stays; its body is rewritten."""
        return self._compound(node)

    def visit_With(self, node: ast.With) -> Any:
        """The statement stays; its body is rewritten."""
        return self._compound(node)

    def visit_Match(self, node: ast.Match) -> Any:
        """The statement stays; its body is rewritten."""
        return self._compound(node)

    def _compound(self, node: Any) -> Any:
        self.generic_visit(node)
        return node

    def _part(
        self, kind: str, number: int, body: Sequence[ast.stmt], symbols: list[str], at: ast.AST, *parameters: str
    ) -> ast.FunctionDef:
        """A function made of statements that assign the enclosing function's names."""
        statements = self._block(body) or [_at(ast.Pass(), at)]
        return _function(f"{kind}_{number}", [*self._declared(symbols, at), *statements], at, *parameters)

    def _declared(self, symbols: list[str], at: ast.AST) -> list[ast.stmt]:
        names = [s for s in symbols if "." not in s]
        self.carried.update(names)
        outer = [n for n in names if self.foreign.get(n) == "global"]
        inner = [n for n in names if n not in outer]
        found: list[ast.stmt] = [_at(ast.Global(outer), at)] if outer else []
        return found + ([_at(ast.Nonlocal(inner), at)] if inner else [])

    def _run(self, name: str, number: int, args: list[ast.expr], symbols: list[str], node: Any) -> list[ast.stmt]:
        """The functions that read and set the state, and the call that runs the statement."""
        read = ast.Tuple([self._read(s, node) for s in symbols], ast.Load())
        getter = _function(f"get_{number}", [ast.Return(read)], node)
        state = f"state_{number}"
        setter = _function(f"set_{number}", self._store(symbols, state, node), node, state)
        described = [_texts(symbols), _texts(s for s in symbols if s in node.live or s in self.foreign)]
        call = staged(name, *args, _name(getter), _name(setter), *described, at=node)
        return [_at(n, node) for n in (getter, setter, ast.Expr(call))]

    def _read(self, symbol: str, at: ast.AST) -> ast.expr:
        value = ast.parse(symbol, mode="eval").body
        plain = "." not in symbol and symbol not in self.foreign
        return self.mangle(value) if plain else staged("load", later(self.mangle(value)), ast.Constant(symbol), at=at)

    def mangle(self, node: ast.expr) -> ast.expr:
        """The expression with private names mangled."""
        for inner in ast.walk(node):
            if isinstance(inner, ast.Attribute):
                inner.attr = self._mangled(inner.attr)
            elif isinstance(inner, ast.Name):
                inner.id = self._mangled(inner.id)
        return node

    def _store(self, symbols: list[str], state: str, at: ast.AST) -> list[ast.stmt]:
        statements: list[ast.stmt] = self._declared(symbols, at)
        for index, symbol in enumerate(symbols):
            value = ast.parse(f"{state}[{index}]", mode="eval").body
            if "." not in symbol:
                statements.append(ast.Assign([self.mangle(ast.Name(symbol, ast.Store()))], value))
                continue
            target = self.mangle(ast.parse(symbol, mode="eval").body)
            assert isinstance(target, ast.Attribute)
            statements.append(ast.Expr(staged("store", target.value, ast.Constant(target.attr), value, at=at)))
        return statements or [ast.Pass()]


def _at(node: Any, at: ast.AST) -> Any:
    ast.copy_location(node, at)
    for inner in ast.walk(node):
        if "lineno" in inner._attributes and not hasattr(inner, "lineno"):
            ast.copy_location(inner, at)
    return node


def _texts(texts: Iterable[str]) -> ast.expr:
    return ast.Tuple([ast.Constant(text) for text in texts], ast.Load())


def _name(function: ast.FunctionDef) -> ast.expr:
    return ast.copy_location(ast.Name(function.name, ast.Load()), function)


def _function(name: str, body: list[ast.stmt], at: ast.AST, *parameters: str) -> ast.FunctionDef:
    args = ast.arguments(
        posonlyargs=[], args=[ast.arg(p) for p in parameters], kwonlyargs=[], kw_defaults=[], defaults=[]
    )
    return _at(function_of(name, args, body), at)


def _unset(name: str, at: ast.AST) -> ast.stmt:
    return _at(ast.Assign([ast.Name(name, ast.Store())], staged("unset", _at(ast.Constant(name), at), at=at)), at)


def _is_doc(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
