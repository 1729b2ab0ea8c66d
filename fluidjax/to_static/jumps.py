"""break, continue and return rewritten as conditions, so that every statement runs to its end.

Code after a jump moves into the other branch::

    if a:                 if a:
        return x              result = x
    y = f()        ->     else:
    return y                  y = f()
                              result = y
                          return result

Where that is not enough, as for a jump in one branch of a nested ``if``, a flag records that the jump was taken, and
the code after it checks the flag. Loops check theirs before each iteration. A ``return`` in a loop leaves the loop by
``break``, after which the value is returned.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Sequence

from fluidjax.to_static.symbols import blocks_of, own_nodes

_LOOPS = (ast.While, ast.For)
_Jump = type[ast.stmt]


def lower_jumps(function: ast.FunctionDef) -> None:
    """Rewrite the jumps of one function, except those of nested functions."""
    _Function(function).lower()


def _statement(text: str, at: ast.AST) -> ast.stmt:
    node = ast.parse(text).body[0]
    for inner in ast.walk(node):
        ast.copy_location(inner, at)
    return node


def _set(name: str, value: bool, at: ast.AST) -> ast.stmt:
    return _statement(f"{name} = {value}", at)


def _if(test: str, body: Sequence[ast.stmt], at: ast.AST) -> ast.If:
    node = _statement(f"if {test}: pass", at)
    assert isinstance(node, ast.If)
    node.body = list(body)
    return node


class _Sink:
    """Removes jumps of certain kinds from a list of statements.

    Args:
        kinds: node types of the jumps; break and continue of inner loops are excluded.
        effect: replaces a jump.
        flag: the name that records, where necessary, that a jump was taken.
    """

    def __init__(self, kinds: tuple[_Jump, ...], effect: Callable[[ast.stmt], list[ast.stmt]], flag: str):
        self.kinds, self.effect, self.flag = kinds, effect, flag
        self.asked = False
        self.marks: list[ast.stmt] = []

    def sink(self, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
        """The statements without the jumps."""
        done: list[ast.stmt] = []
        for index, node in enumerate(statements):
            rest = list(statements[index + 1 :])
            if isinstance(node, self.kinds):
                mark = _set(self.flag, True, node)
                self.marks.append(mark)
                return [*done, *self.effect(node), mark]
            done.append(node)
            if self.jumps([node]):
                return [*done, *self._compound(node, rest)]
        return done

    def _compound(self, node: ast.stmt, rest: list[ast.stmt]) -> list[ast.stmt]:
        """Remove the jumps from one statement; returns what remains to be done after it."""
        if isinstance(node, ast.If) and self.always(node.body):
            node.body, node.orelse = self.sink(node.body), self.sink([*node.orelse, *rest])
            return []
        if isinstance(node, ast.If) and self.always(node.orelse):
            node.body, node.orelse = self.sink([*node.body, *rest]), self.sink(node.orelse)
            return []
        for block in blocks_of(node):
            block[:] = self.sink(block)
        if not rest:
            return []
        self.asked = True
        return [_if(f"not {self.flag}", self.sink(rest), rest[0])]

    def jumps(self, statements: Sequence[ast.stmt]) -> bool:
        """Whether any of the statements may jump."""
        for node in statements:
            if isinstance(node, self.kinds):
                return True
            inner = not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
            if isinstance(node, _LOOPS) and ast.Return not in self.kinds:
                inner = False
            if inner and any(self.jumps(block) for block in blocks_of(node)):
                return True
        return False

    def always(self, statements: Sequence[ast.stmt]) -> bool:
        """Whether the statements are certain to jump."""
        for node in statements:
            if isinstance(node, self.kinds):
                return True
            if isinstance(node, ast.If) and self.always(node.body) and self.always(node.orelse):
                return True
        return False

    def drop_marks(self) -> None:
        """Do not set the flag if it is never checked."""
        for mark in self.marks:
            assert isinstance(mark, ast.Assign)
            mark.targets[0] = ast.copy_location(ast.Name("_", ast.Store()), mark)
            mark.unused = True  # type: ignore[attr-defined]


class _Function:
    def __init__(self, function: ast.FunctionDef):
        self.function = function
        taken = {n.id for n in ast.walk(function) if isinstance(n, ast.Name)}
        self.numbers = (i for i in itertools.count() if not {f"{k}_{i}" for k in _KINDS} & taken)

    def lower(self) -> None:
        body = self._loops(self.function.body)
        if any(isinstance(n, ast.If) and _returns([n]) for n in own_nodes(body)):
            body = self._returns(body)
        self.function.body = _without_unused(body)

    def _name(self, kind: str) -> str:
        return f"{kind}_{next(self.numbers)}"

    # --- loops --------------------------------------------------------------------------------------------------------

    def _loops(self, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
        """Rewrite the loops among the statements, inner ones first."""
        done: list[ast.stmt] = []
        for node in statements:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                done.append(node)
                continue
            for block in blocks_of(node):
                block[:] = self._loops(block)
            done += self._loop(node) if isinstance(node, _LOOPS) else [node]
        return done

    def _loop(self, node: ast.While | ast.For) -> list[ast.stmt]:
        before, after = self._returns_of_loop(node)
        continues = _Sink((ast.Continue,), lambda _: [], self._name("continue"))
        breaks = _Sink((ast.Break,), lambda _: [], self._name("break"))
        both = _Sink((ast.Break, ast.Continue), lambda jump: _taken(jump, breaks, continues), breaks.flag)
        node.stop = None  # type: ignore[union-attr]
        if both.jumps(node.body):
            broken = breaks.jumps(node.body)
            both.flag = self._name("jumped")
            node.body = both.sink(node.body)
            if both.asked:
                node.body.insert(0, _set(both.flag, False, node))
            else:
                both.drop_marks()
            if broken:
                before.append(_set(breaks.flag, False, node))
                node.stop = breaks.flag  # type: ignore[union-attr]
                if isinstance(node, ast.While):
                    _ask_before(node, breaks.flag)
        otherwise, node.orelse = node.orelse, []
        if otherwise and node.stop:  # type: ignore[union-attr]
            otherwise = [_if(f"not {node.stop}", otherwise, otherwise[0])]  # type: ignore[union-attr]
        return [*before, node, *otherwise, *after]

    def _returns_of_loop(self, node: ast.While | ast.For) -> tuple[list[ast.stmt], list[ast.stmt]]:
        """Make a return within the loop leave it by break; returns the statements to add before and after the loop."""
        if not _returns(node.body):
            return [], []
        flag, value = self._name("returned"), self._name("value")
        _Replace(flag, value).in_blocks(node.body)
        return [_set(flag, False, node)], [_if(flag, [_statement(f"return {value}", node)], node)]

    # --- the function -------------------------------------------------------------------------------------------------

    def _returns(self, body: list[ast.stmt]) -> list[ast.stmt]:
        result, flag = self._name("result"), self._name("returned")
        last = body[-1]

        def keep(node: ast.stmt) -> list[ast.stmt]:
            assert isinstance(node, ast.Return)
            kept = _statement(f"{result} = None", node)
            assert isinstance(kept, ast.Assign)
            kept.value = node.value or kept.value
            return [kept]

        sink = _Sink((ast.Return,), keep, flag)
        if not sink.always(body):
            body = [*body, _statement("return None", last)]
        body = sink.sink(body)
        if sink.asked:
            body.insert(0, _set(flag, False, body[0]))
        else:
            sink.drop_marks()
        return [*body, _statement(f"return {result}", last)]


_KINDS = ("continue", "break", "jumped", "returned", "value", "result")


def _taken(jump: ast.stmt, breaks: _Sink, continues: _Sink) -> list[ast.stmt]:
    return [_set(breaks.flag, True, jump)] if isinstance(jump, ast.Break) else []


def _ask_before(loop: ast.While, flag: str) -> None:
    test = _statement(f"(not {flag}) and test", loop)
    assert isinstance(test, ast.Expr) and isinstance(test.value, ast.BoolOp)
    test.value.values[1] = loop.test
    loop.test = test.value


def _returns(statements: Sequence[ast.stmt]) -> bool:
    return any(isinstance(node, ast.Return) for node in own_nodes(statements))


class _Replace:
    """Replaces each return in a loop's body: set the flag, store the value, break."""

    def __init__(self, flag: str, value: str):
        self.flag, self.value = flag, value

    def in_blocks(self, statements: list[ast.stmt]) -> None:
        """Replace in a list of statements and in nested ones."""
        replaced: list[ast.stmt] = []
        for node in statements:
            if isinstance(node, ast.Return):
                kept = _statement(f"{self.value} = None", node)
                assert isinstance(kept, ast.Assign)
                kept.value = node.value or kept.value
                replaced += [kept, _set(self.flag, True, node), ast.copy_location(ast.Break(), node)]
                continue
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                for block in blocks_of(node):
                    self.in_blocks(block)
            replaced.append(node)
        statements[:] = replaced


def _without_unused(statements: Sequence[ast.stmt]) -> list[ast.stmt]:
    kept = [node for node in statements if not getattr(node, "unused", False)]
    for node in kept:
        for block in blocks_of(node):
            block[:] = _without_unused(block)
    return kept or ([ast.copy_location(ast.Pass(), statements[0])] if statements else [])
