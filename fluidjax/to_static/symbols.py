"""Which symbols statements assign, change and read.

A symbol is a name, ``x``, or an attribute path, ``self.state``. Changing an item changes its container: ``d["k"] = 1``
and ``l.append(x)`` change ``d`` and ``l``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

_CHANGING = frozenset(
    ("append", "extend", "insert", "pop", "remove", "clear", "reverse", "sort", "update", "setdefault", "popitem")
)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def symbol_of(node: ast.AST) -> str | None:
    """``x`` or ``x.a.b``; None for an expression that is neither."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        inner = symbol_of(node.value)
        return None if inner is None else f"{inner}.{node.attr}"
    return None


def _holder(node: ast.AST) -> str | None:
    """The symbol that an assignment to `node` changes; for an item, its container."""
    while isinstance(node, (ast.Subscript, ast.Starred)):
        node = node.value
    return symbol_of(node)


def own_nodes(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """All nodes of the same scope, parents first; the bodies of nested functions and classes are excluded."""
    for node in nodes:
        yield node
        if not isinstance(node, _SCOPES):
            yield from own_nodes(ast.iter_child_nodes(node))


def assigned(statements: Sequence[ast.stmt]) -> list[str]:
    """The symbols that the statements assign or change, sorted; attributes of an assigned name are omitted."""
    found: set[str] = set()
    _assigned(statements, frozenset(), found)
    names = {s for s in found if "." not in s}
    return sorted(names | {s for s in found if "." in s and s.split(".")[0] not in names})


def _assigned(nodes: Iterable[ast.AST], hidden: frozenset[str], found: set[str]) -> None:
    for node in nodes:
        found.update(s for s in _binds(node) if s not in hidden)
        if isinstance(node, _SCOPES):
            continue
        inner = hidden
        if isinstance(node, _COMPREHENSIONS):
            inner = hidden | {n.id for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name)}
        if isinstance(node, ast.ExceptHandler) and node.name:
            inner = hidden | {node.name}
        _assigned(ast.iter_child_nodes(node), inner, found)


def _binds(node: ast.AST) -> Iterator[str]:
    if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)) and isinstance(node.ctx, (ast.Store, ast.Del)):
        symbol = _holder(node)
        if symbol is not None:
            yield symbol
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, ast.alias):
        yield (node.asname or node.name).split(".")[0]
    elif isinstance(node, (ast.MatchAs, ast.MatchStar)) and node.name:
        yield node.name
    elif isinstance(node, ast.MatchMapping) and node.rest:
        yield node.rest
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGING:
        symbol = _holder(node.func.value)
        if symbol is not None:
            yield symbol


def parameters(function: ast.FunctionDef) -> set[str]:
    """The names of a function's parameters."""
    args = function.args
    several = [a for a in (args.vararg, args.kwarg) if a is not None]
    return {a.arg for a in (*args.posonlyargs, *args.args, *args.kwonlyargs, *several)}


def bound(function: ast.FunctionDef) -> set[str]:
    """The names that a function binds: parameters, and what its own statements assign as a whole, not by item."""
    found = parameters(function)
    for node in own_nodes(function.body):
        if not isinstance(node, (ast.Subscript, ast.Attribute, ast.Call)):
            found.update(_binds(node))
    return found


def reads(nodes: Iterable[ast.AST]) -> set[str]:
    """The names that nodes read, including those read in nested functions."""
    return {
        n.id
        for node in nodes
        for n in ast.walk(node)
        if isinstance(n, ast.Name) and isinstance(n.ctx, (ast.Load, ast.Del))
    }


def note_live(function: ast.FunctionDef) -> None:
    """Set ``live`` on each if, while and for: names that may be read after it, regardless of assignments in between."""
    always = set()
    for node in own_nodes(function.body):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.GeneratorExp)):
            always |= reads([node])
    _note_live(function.body, frozenset(always))


def _note_live(statements: Sequence[ast.stmt], after: frozenset[str]) -> None:
    for index, node in enumerate(statements):
        live = after | reads(statements[index + 1 :])
        if isinstance(node, (ast.If, ast.While, ast.For)):
            node.live = sorted(live)  # type: ignore[union-attr]
        if not isinstance(node, (ast.If, *_SCOPES)):
            live = live | reads([node]) | {getattr(node, "stop", None) or ""}
        if not isinstance(node, _SCOPES):
            for block in blocks_of(node):
                _note_live(block, frozenset(live))


def blocks_of(node: ast.stmt) -> list[list[ast.stmt]]:
    """The lists of statements in a compound statement."""
    found = [getattr(node, field, None) for field in ("body", "orelse", "finalbody")]
    inner = [part.body for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ()))]
    return [block for block in (*found, *inner) if isinstance(block, list) and block]
