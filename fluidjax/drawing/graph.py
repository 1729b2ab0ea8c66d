"""A block as a graph to draw: ops are folded into the layers that wrote them, chains of layers into boxes."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from fluidjax.framework import Block, Operator
from fluidjax.framework.listing import FORWARD, made_at, op_line, part, shape_text
from lowering.engine.dataflow import MARKERS
from lowering.program import EMPTY

# A layer names what its ops write after itself: fc_0.tmp_0, fc_0.tmp_1.
_LAYER = re.compile(r"^(?P<layer>.+?)\.tmp_\d+$")
# Layers of one box.
_STACK = 12

DATA, LEARNS, PLAIN, BLOCKS, RESULT = "fed", "has parameters", "no parameters", "runs a block", "result"


@dataclass
class Line:
    """A layer: its name, op types, output shape and details."""

    name: str
    ops: str
    shape: str
    tip: str


@dataclass
class Node:
    """A box: its lines from top to bottom, and the role that determines its colour."""

    role: str
    lines: list[Line]
    before: list[int] = field(default_factory=list)  # the boxes it reads from


def graph(block: Block) -> list[Node]:
    """The forward pass of a block, with each box after those it depends on."""
    nodes: list[Node] = []
    made: dict[str, int] = {}  # variable -> the box that gives it
    for ops in layers(block):
        read = _read(ops)
        for name in sorted(read - made.keys()):
            if _enters(block, name):
                made[name] = len(nodes)
                nodes.append(Node(DATA, [_fed(block, name)]))
        node = Node(_role(ops), [_line(ops)], sorted({made[name] for name in read if name in made}))
        made.update({name: len(nodes) for op in ops for name in op.output_arg_names})
        nodes.append(node)
    return stacked(_with_results(nodes))


def layers(block: Block) -> Iterator[list[Operator]]:
    """The forward ops grouped by layer. Only adjacent ops are grouped, so there are no cycles."""
    ops = [op for op in block.ops if part(op) == FORWARD and op.type not in MARKERS]
    for _, group in itertools.groupby(enumerate(ops), key=lambda item: _layer(item[1]) or item[0]):
        yield [op for _, op in group]


def _layer(op: Operator) -> str:
    """The layer that wrote an op; empty for ops that run a block or write variables of an enclosing block."""
    if op._sub_block_ids():
        return ""
    found = (_LAYER.match(name) for name in op.output_arg_names if op.block.has_var(name))
    return next((match["layer"] for match in found if match), "")


def _read(ops: list[Operator]) -> set[str]:
    """The variables read by the ops but not written by them."""
    found: set[str] = set()
    written: set[str] = set()
    for op in ops:
        found |= {name for name in op.input_arg_names if name not in written and name != EMPTY}
        written.update(op.output_arg_names)
    return found


def _enters(block: Block, name: str) -> bool:
    """Whether a variable not written in the block deserves a box: fed, or from the enclosing block."""
    var = block._find_var_recursive(name)
    return var is not None and not var.persistable


def _fed(block: Block, name: str) -> Line:
    var = block._find_var_recursive(name)
    return Line(name, "", "" if var is None else shape_text(var), name)


def _role(ops: list[Operator]) -> str:
    if any(op._sub_block_ids() for op in ops):
        return BLOCKS
    return LEARNS if any(_parameters(op) for op in ops) else PLAIN


def _parameters(op: Operator) -> list[str]:
    found = (op.block._find_var_recursive(name) for name in op.input_arg_names)
    return [var.name for var in found if var is not None and var.persistable]


def _line(ops: list[Operator]) -> Line:
    last = ops[-1]
    runs = bool(last._sub_block_ids())
    name = last.type if runs else _layer(last) or (last.output_arg_names or [last.type])[0]
    types = [op.type for op in ops]
    shown = "" if len(types) == 1 and re.fullmatch(re.escape(types[0]) + r"(_\d+)?", name) else " + ".join(_runs(types))
    return Line(name, shown, "" if runs else _result_shape(last), "\n".join(_tip(ops)))


def _runs(types: Iterable[str]) -> Iterator[str]:
    """Abbreviate ``mul, mul`` to ``mul ×2``."""
    for name, group in itertools.groupby(types):
        count = len(list(group))
        yield name if count == 1 else f"{name} ×{count}"


def _result_shape(op: Operator) -> str:
    names = next((op.output(slot) for slot in ("Out", "Output", "Y", "Hidden") if op.output(slot)), op.output_arg_names)
    var = op.block._find_var_recursive(names[0]) if names else None
    return "" if var is None else shape_text(var)


def _tip(ops: list[Operator]) -> Iterator[str]:
    yield from dict.fromkeys(filter(None, map(made_at, ops)))
    yield from map(op_line, ops)
    held = {name: ops[0].block._find_var_recursive(name) for op in ops for name in _parameters(op)}
    yield from (f"{name} {shape_text(var)}: {math.prod(map(abs, var.shape)):,}" for name, var in held.items() if var)


def _with_results(nodes: list[Node]) -> list[Node]:
    """The boxes, with those from which nothing reads marked as results."""
    read = {at for node in nodes for at in node.before}
    for at, node in enumerate(nodes):
        if at not in read and node.role in (PLAIN, LEARNS):
            node.role = RESULT
    return nodes


def stacked(nodes: list[Node]) -> list[Node]:
    """The graph with chains of boxes merged: a box joins its predecessor if each is the other's only neighbour."""
    readers = [0] * len(nodes)
    for node in nodes:
        for at in node.before:
            readers[at] += 1
    home: list[int] = []  # old box -> new box
    kept: list[Node] = []
    for node in nodes:
        above = node.before[0] if len(node.before) == 1 else None
        if above is not None and readers[above] == 1 and _joins(kept[home[above]], node):
            at = home[above]
            kept[at].lines += node.lines
            kept[at].role = node.role if node.role == RESULT else _together(kept[at].role, node.role)
        else:
            at = len(kept)
            node.before = sorted({home[old] for old in node.before})
            kept.append(node)
        home.append(at)
    return kept


def _joins(above: Node, node: Node) -> bool:
    return above.role in (PLAIN, LEARNS) and node.role in (PLAIN, LEARNS, RESULT) and len(above.lines) < _STACK


def _together(one: str, other: str) -> str:
    return LEARNS if LEARNS in (one, other) else PLAIN
