"""Memory planning: when each stored value is alive, whose memory it reuses, and its offset in a single arena.

Times number the statements in the order they are written; the bodies of loops and branches fall between the start
and end of their statement. What a loop reads from outside lives until its end, since every iteration reads it again.
"""

from __future__ import annotations

import bisect
from collections import Counter
from dataclasses import dataclass, field

from fluidjax.export.c.fuse import Fusion, given_to
from fluidjax.export.c.rules import CONTROL, ELEMENTS, KERNELS
from fluidjax.export.graph import Body, Node, Value

ALIGNMENT = 64


@dataclass
class Lifetimes:
    """Start and end of each stored value's lifetime."""

    fusion: Fusion
    begin: dict[Value, int] = field(default_factory=dict)
    end: dict[Value, int] = field(default_factory=dict)
    time: dict[Node, tuple[int, int]] = field(default_factory=dict)
    now: int = 0

    def run(self, body: Body) -> None:
        """Visit a body."""
        for node in self.fusion.statements(body):
            self.now += 1
            begin = self.now
            for value in node.outs:
                if value not in self.fusion.inline:
                    self.begin[value] = begin
            for inner, _ in given_to(node):
                self._given(inner)
                self.run(inner)
            if node.prim in CONTROL:
                self.now += 1
            self.time[node] = (begin, self.now)
            for root in [*self.fusion.reads(node), *map(self.fusion.root, node.outs)]:
                self.end[root] = max(self.end.get(root, 0), self.now)
        self.now += 1
        for value in body.outputs:
            root = self.fusion.root(value)
            self.end[root] = max(self.end.get(root, 0), self.now)

    def _given(self, inner: Body) -> None:
        for value in inner.inputs:
            if self.fusion.root(value) is value:
                self.begin[value] = self.end[value] = self.now

    def alive_after(self, value: Value, node: Node) -> bool:
        """Whether a stored value is read after a statement, in this iteration of the loops around it or a later one."""
        return self.end.get(self.fusion.root(value), 0) > self.time[node][1]


class Owners:
    """Maps each stored value to the value whose memory it occupies."""

    def __init__(self, fusion: Fusion, lifetimes: Lifetimes, free: set[Value]):
        self.fusion, self.lifetimes = fusion, lifetimes
        self._owner: dict[Value, Value] = {}
        self._free = free  # inputs that may be overwritten

    def of(self, value: Value) -> Value:
        """The owner of a root's memory."""
        while value in self._owner:
            value = self._owner[value]
        return value

    def take(self, value: Value, source: Value) -> None:
        """Put ``value`` into the memory of ``source``."""
        value, source = self.of(value), self.of(self.fusion.root(source))
        if value is not source:
            self._owner[value] = source

    def may_take(self, node: Node, value: Value, source: Value) -> bool:
        """Whether ``value``, written by ``node``, may occupy the memory of ``source``, which ``node`` reads."""
        if source in self.fusion.inline or source.constant is not None:
            return False
        root = self.fusion.root(source)
        if root.constant is not None or (root.node is None and root not in self._free):
            return False
        return value.nbytes == root.nbytes and value.dtype == root.dtype and not self.lifetimes.alive_after(root, node)

    def share(self, body: Body) -> None:
        """Let the outputs of a body's statements reuse the memory of inputs that are not read again."""
        for node in self.fusion.statements(body):
            if node.prim in KERNELS:
                at = KERNELS[node.prim].updates
                if at is not None and Counter(self.fusion.reads(node))[self.fusion.root(node.ins[at])] == 1:
                    self._try(node, node.outs[0], [node.ins[at]])
            elif node.prim in ELEMENTS:
                self._try(node, node.outs[0], self._same_places(node))
            self._share_inside(node)

    def _try(self, node: Node, value: Value, sources: list[Value]) -> None:
        for source in sources:
            if self.may_take(node, value, source):
                self.take(value, source)
                return

    def _same_places(self, node: Node) -> list[Value]:
        """The stored inputs that an element-wise statement reads only at the positions it writes."""
        seen: dict[Value, bool] = {}

        def look(value: Value, same: bool) -> None:
            if value in self.fusion.inline:
                inner = value.node
                assert inner is not None
                for source in inner.ins:
                    look(source, same and inner.prim in ELEMENTS and source.shape == value.shape)
            elif not value.scalar:
                root = self.fusion.root(value)
                seen[root] = seen.get(root, True) and same

        for source in node.ins:
            look(source, source.shape == node.outs[0].shape)
        return [root for root, same in seen.items() if same]

    def _share_inside(self, node: Node) -> None:
        if node.prim == "while":
            self._carry(node, node.ins[node.params["cond_nconsts"] + node.params["body_nconsts"] :], node.outs)
            skip = node.params["body_nconsts"]
            self._inside(node, node.bodies["body_jaxpr"][0], skip, node.outs)
            self._inside(node, node.bodies["cond_jaxpr"][0], node.params["cond_nconsts"], node.outs, final=False)
        elif node.prim == "scan":
            skip, carries = node.params["num_consts"], node.params["num_carry"]
            self._carry(node, node.ins[skip : skip + carries], node.outs[:carries])
            self._inside(node, node.bodies["jaxpr"][0], skip, node.outs[:carries])
        elif node.prim == "cond":
            for body in node.bodies["branches"]:
                self.share(body)
                once = Counter(map(self.fusion.root, body.outputs))
                for value, out in zip(body.outputs, node.outs, strict=True):
                    root = self.fusion.root(value)
                    if root.node is not None and once[root] == 1 and self.of(root) is root and root.dtype == out.dtype:
                        self.take(root, out)

    def _carry(self, node: Node, given: list[Value], outs: list[Value]) -> None:
        """Keep a loop's state in the memory of its initial value, unless that has another reader."""
        count = Counter(self.fusion.reads(node))
        for source, out in zip(given, outs, strict=True):
            if count[self.fusion.root(source)] == 1:
                self._try(node, out, [source])

    def _inside(self, node: Node, body: Body, skip: int, outs: list[Value], final: bool = True) -> None:
        for value, out in zip(body.inputs[skip:], outs, strict=False):
            self.take(value, out)
            if final:
                self._free.add(value)
        self.share(body)


@dataclass
class Room:
    """An owner's memory over its lifetime."""

    owner: Value
    begin: int
    end: int
    nbytes: int
    offset: int = 0


def placed(rooms: list[Room]) -> tuple[dict[Value, int], int]:
    """(owner -> offset, arena size): each room takes the smallest gap that is free when its lifetime begins."""
    gaps: list[tuple[int, int]] = []  # (offset, size), in order
    top = 0
    ending: list[tuple[int, int, int]] = []
    found: dict[Value, int] = {}
    for room in sorted(rooms, key=lambda r: r.begin):
        while ending and ending[0][0] < room.begin:
            _, offset, size = ending.pop(0)
            _release(gaps, offset, size)
        size = max(-(-room.nbytes // ALIGNMENT) * ALIGNMENT, ALIGNMENT)
        fits = [(gap, at) for at, (_, gap) in enumerate(gaps) if gap >= size]
        if fits:
            gap, at = min(fits)
            offset = gaps[at][0]
            gaps[at : at + 1] = [(offset + size, gap - size)] if gap > size else []
        elif gaps and gaps[-1][0] + gaps[-1][1] == top:
            offset, gap = gaps.pop()
            top = offset + size
        else:
            offset, top = top, top + size
        found[room.owner] = offset
        bisect.insort(ending, (room.end, offset, size))
    return found, top


def _release(gaps: list[tuple[int, int]], offset: int, size: int) -> None:
    at = bisect.bisect(gaps, (offset, 0))
    gaps.insert(at, (offset, size))
    if at + 1 < len(gaps) and offset + size == gaps[at + 1][0]:
        gaps[at : at + 2] = [(offset, size + gaps[at + 1][1])]
    if at and gaps[at - 1][0] + gaps[at - 1][1] == offset:
        gaps[at - 1 : at + 1] = [(gaps[at - 1][0], gaps[at - 1][1] + gaps[at][1])]
