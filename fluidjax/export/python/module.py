"""Ops as functions, shared between equal ops, and the statements that call them in program order."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fluidjax.export.graph import Body, Node, Value, walk
from fluidjax.export.python.functions import GROWS, Function, Names, large, uses_of
from fluidjax.export.python.texts import ATOM, Expr, identifier, is_fixed, lines_of, literal, number_text
from lowering.program import OpView

_TUPLE = re.compile(r"\.(reshape|transpose)\(\(([^()]+)\)\)")
MARK = re.compile("\u27e6(\\d+)\u27e7")


@dataclass
class Helper:
    """A function shared by ops: its text with marks, and what each call passes for them."""

    name: str
    arguments: list[str]
    lines: list[str]
    says: str
    calls: list[list[tuple[str, Any]]] = field(default_factory=list)

    def keywords(self) -> dict[int, str]:
        """Mark -> argument name, for marks that differ between calls."""
        found: dict[int, str] = {}
        taken = Names([*self.arguments, *re.findall(r"\w+", re.sub(r"\b\w+=(?!=)", "", " ".join(self.lines)))])
        named: dict[tuple[str, ...], str] = {}
        for at, (hint, first) in enumerate(self.calls[0] if self.calls else []):
            texts = [_text(call[at][1]) for call in self.calls]
            if len(set(texts)) > 1 or not is_fixed(first):
                key = (hint, *texts)
                named[key] = named.get(key) or taken.new(hint)
                found[at] = named[key]
        return found

    def text(self) -> list[str]:
        """The text of the definition."""
        keywords = self.keywords()

        def shown(match: re.Match[str]) -> str:
            at = int(match[1])
            return keywords.get(at) or _wrapped(_text(self.calls[0][at][1]))

        names = list(dict.fromkeys(keywords.values()))
        head = f"def {self.name}({', '.join([*self.arguments, *(['*', *names] if names else [])])}):"
        body = [_TUPLE.sub(r".\1(\2)", MARK.sub(shown, line)) for line in self.lines]
        says = [f'    """{self.says}"""'] if self.says else []
        return [*lines_of(head, 0), *says, *(out for line in body for out in lines_of(line, 4))]

    def call(self, at: int, given: Sequence[str]) -> str:
        """The text of call number ``at``."""
        words = {name: _text(self.calls[at][mark][1]) for mark, name in self.keywords().items()}
        return f"{self.name}({', '.join([*given, *(f'{n}={t}' for n, t in words.items())])})"


def _text(value: Any) -> str:
    return number_text(value) if isinstance(value, np.generic) else literal(value)


def _wrapped(text: str) -> str:
    return f"({text})" if text.startswith("-") else text


class Module:
    """Writes a graph as functions.

    Args:
        body: the graph.
        given: input -> the expression for it.
        op_of: returns the op that a node comes from.
        taken: names that are not available.
    """

    def __init__(
        self, body: Body, given: dict[Value, Expr], op_of: Callable[[Node], OpView | None], taken: Sequence[str]
    ):
        self.op_of = op_of
        self.helpers: dict[tuple[str, ...], Helper] = {}
        self.constants: dict[str, np.ndarray] = {}
        ops = {op.type for node in body.nodes if (op := op_of(node))}
        self._forms: Counter[str] = Counter()
        self._known, self._names = dict(given), Names([*taken, *map(identifier, ops), "prepare", "ragged"])
        self._uses = uses_of(body)
        self._bound: dict[str, Value] = {}
        self._steps: list[Callable[[], list[str]]] = []
        groups = list(self._groups(body))
        self._last = {v: i for i, (_, nodes) in enumerate(groups) for v in _reads(nodes)}
        self._last.update(dict.fromkeys(body.outputs, len(groups) + 1))
        for node in walk(body):
            self._keep(node)
        for at, (op, nodes) in enumerate(groups):
            self._group(at, op, nodes)
        tail = Function(self._names, self._uses)
        tail.known = self._known
        for value in body.outputs:
            if large(value):
                self._keep_value(value)
        self.outputs = [tail.tight(v, 0) for v in body.outputs]

    def lines(self) -> list[str]:
        """The statements of the main function."""
        return [line for step in self._steps for line in step()]

    def _groups(self, body: Body) -> Iterator[tuple[OpView | None, list[Node]]]:
        ops = [self.op_of(node) for node in body.nodes]
        pairs = itertools.groupby(zip(ops, body.nodes, strict=True), key=lambda pair: id(pair[0]))
        for _, group in pairs:
            found = list(group)
            yield found[0][0], [node for _, node in found]

    def _keep(self, node: Node) -> None:
        for value in node.ins:
            if large(value) and value not in self._known:
                self._keep_value(value)

    def _keep_value(self, value: Value) -> None:
        assert value.constant is not None
        name = f"constant_{len(self.constants)}"
        self.constants[name] = value.constant
        self._known[value] = Expr(f'p["{name}"]', ATOM, value.shape)

    def _group(self, at: int, op: OpView | None, nodes: list[Node]) -> None:
        made = {v for node in nodes for v in node.outs}
        outs = [v for node in nodes for v in node.outs if self._last.get(v, -1) > at]
        control = any(node.bodies for node in nodes)
        if not outs:
            return
        trial = Function(self._names if control else Names(self._names.taken), _uses(nodes, outs))
        trial.known = dict(self._known)
        trial.write(nodes)
        if control or (not trial.lines and len(outs) == 1 and len(trial.tight(outs[0], 0)) <= GROWS):
            texts = [trial.tight(v, 0) for v in outs]
            assigned = [f"{name} = {text}" for name, text in self._names_for(at, outs, texts)]
            self._steps.append(lambda lines=[*trial.lines, *assigned]: [o for s in lines for o in _statement(s)])  # type: ignore[misc]
            return
        read = dict.fromkeys(v for node in nodes for v in node.ins if v not in made and v in self._known)
        order = [name for names in op.inputs.values() for name in names] if op is not None else []
        slot = {v: order.index(v.name) if v.name in order else len(order) for v in read}
        ins = sorted(read, key=lambda v: (self._known[v].text.startswith("p["), slot[v]))
        helper, number = self._helper(op, nodes, ins, outs)
        given = [self._known[v].text for v in ins]
        names = [name for name, _ in self._names_for(at, outs, [""] * len(outs))]
        self._steps.append(lambda: lines_of(f"{', '.join(names)} = {helper.call(number, given)}", 4))

    def _names_for(self, at: int, outs: Sequence[Value], texts: Sequence[str]) -> Iterator[tuple[str, str]]:
        """A name for each value: its variable's, reused once the previous holder is no longer needed."""
        for value, text in zip(outs, texts, strict=True):
            wish = identifier(re.sub(r"\.tmp_\d+$", "", value.name) or "value")
            held = self._bound.get(wish)
            again = held is not None and self._last.get(held, -1) <= at and held not in outs
            name = wish if again else self._names.new(wish)
            self._bound[name] = value
            self._known[value] = Expr(name, ATOM, value.shape)
            if text != name:
                yield name, text

    def _helper(
        self, op: OpView | None, nodes: list[Node], ins: Sequence[Value], outs: Sequence[Value]
    ) -> tuple[Helper, int]:
        kind = op.type if op is not None else "prepare"
        names = Names()
        arguments = [names.new(word) for word in _slots(op, ins)]
        function = Function(names, _uses(nodes, outs), outlined=True)
        function.known = {v: Expr(name, ATOM, v.shape) for v, name in zip(ins, arguments, strict=True)}
        function.write(nodes)
        returned = ", ".join(function.tight(v, 0) for v in outs)
        lines = [*function.lines, f"return {returned}"]
        if len(lines) > 1 and lines[-2].startswith(f"{returned} = "):
            lines[-2:] = [f"return {lines[-2].removeprefix(f'{returned} = ')}"]
        key = (kind, *arguments, "|", *lines)
        if key not in self.helpers:
            self._forms[kind] += 1
            form = f"_form_{self._forms[kind]}" if self._forms[kind] > 1 else ""
            self.helpers[key] = Helper(identifier(kind) + form, arguments, lines, _says(op))
        helper = self.helpers[key]
        helper.calls.append(function.marked)
        return helper, len(helper.calls) - 1


def _uses(nodes: Sequence[Node], outs: Sequence[Value]) -> Counter[Value]:
    return uses_of(Body([], list(nodes), list(outs)))


def _statement(text: str) -> list[str]:
    """A statement of the main function; lines of a nested function are already indented."""
    inner = len(text) - len(text.lstrip())
    return lines_of(text.lstrip(), 4 + inner)


def _reads(nodes: Sequence[Node]) -> Iterator[Value]:
    for node in nodes:
        yield from node.ins
        for bodies in node.bodies.values():
            for body in bodies:
                yield from _reads(body.nodes)


def _slots(op: OpView | None, ins: Sequence[Value]) -> list[str]:
    """The names of the slots that an op reads."""
    slots = {name: slot for slot, names in op.inputs.items() for name in names} if op is not None else {}
    return [_snake(slots.get(value.name, "x")) for value in ins]


def _snake(word: str) -> str:
    return identifier(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", word).lower())


def _says(op: OpView | None) -> str:
    return f"Fluid's {op.type}." if op is not None else ""


def quoted(name: str) -> str:
    """A Python string literal."""
    return json.dumps(name)
