"""Which values are stored in memory, and which become expressions in the loops of others.

A value is *stored*, or *inline* (each element is computed where it is read), or another *name* for a stored value
(a reshape of it). Views of stored values are inline, and so are values with a single reader that reads each element
about once.
"""

from __future__ import annotations

from collections.abc import Iterator

from fluidjax.export.c.rules import CONTROL, ELEMENTS, KERNELS, REPEATING
from fluidjax.export.graph import Body, Node, Value

# The maximum number of operations and reads in one expression: longer ones compile badly.
LONGEST = 48


class Fusion:
    """The decisions for one graph, including the bodies of its loops and branches."""

    def __init__(self, body: Body):
        self.inline: dict[Value, int] = {}  # value -> operations per element
        self._length: dict[Value, int] = {}
        self._source: dict[Value, Value] = {}  # alias -> the value it stands for
        self._decide(body)

    def root(self, value: Value) -> Value:
        """The value whose memory holds ``value``'s elements."""
        while value in self._source:
            value = self._source[value]
        return value

    def name(self, value: Value, source: Value) -> None:
        """Make ``value`` an alias for the memory of ``source``."""
        self._source[value] = source

    def statements(self, body: Body) -> list[Node]:
        """The nodes of a body that fill memory, in order."""
        return [n for n in body.nodes if any(v not in self.inline and v not in self._source for v in n.outs)]

    def reads(self, node: Node) -> Iterator[Value]:
        """The stored values that a statement reads, as roots, once per read."""
        for value in node.ins:
            yield from self.leaves(value)

    def leaves(self, value: Value) -> Iterator[Value]:
        """The stored values from which an element of ``value`` is computed."""
        if value in self.inline:
            for source in value.node.ins:  # type: ignore[union-attr]
                yield from self.leaves(source)
        elif not value.scalar:
            yield self.root(value)

    def _decide(self, body: Body) -> None:
        readers: dict[Value, list[tuple[Node, int]]] = {}
        for node in body.nodes:
            for at, value in enumerate(node.ins):
                readers.setdefault(value, []).append((node, at))
        for node in body.nodes:
            for inner, given in given_to(node):
                self._give(inner, given)
                self._decide(inner)
            for value in node.outs:
                self._decide_value(node, value, readers.get(value, []))
        for value in body.outputs:
            self._store(value)

    def _give(self, inner: Body, given: list[Value | None]) -> None:
        """Make a body's inputs aliases of what the loop or branch receives, as far as those stay unchanged."""
        for value, source in zip(inner.inputs, given, strict=True):
            if source is not None:
                self._store(source)
                if source.constant is not None:
                    value.constant = source.constant
                else:
                    self.name(value, source)

    def _decide_value(self, node: Node, value: Value, readers: list[tuple[Node, int]]) -> None:
        if node.prim in KERNELS or node.prim in CONTROL:
            for at, source in enumerate(node.ins):
                if not self._takes(node, at, source):
                    self._store(source)
            return
        if _only_reshapes(node, value):
            if node.ins[0] in self.inline and node.prim == "reshape" and not _only_units(node):
                self._store(node.ins[0])
            if node.ins[0] not in self.inline and not node.ins[0].scalar:
                self.name(value, node.ins[0])
                return
        for source in node.ins:
            if self.inline.get(source, 0) and value.size > source.size and node.prim in REPEATING | ELEMENTS.keys():
                self._store(source)
        cost = sum(self.inline.get(source, 0) for source in node.ins) + (node.prim in ELEMENTS)
        length = 1 + sum(self._length.get(source, 1) for source in node.ins)
        if length <= LONGEST and (cost == 0 or (len(readers) == 1 and self._streams(*readers[0]))):
            self.inline[value], self._length[value] = cost, length

    def _streams(self, reader: Node, at: int) -> bool:
        """Whether a reader accepts an expression as its input ``at``."""
        if reader.prim in KERNELS:
            streams = KERNELS[reader.prim].streams
            return streams is None or at in streams
        return reader.prim not in CONTROL

    def _takes(self, node: Node, at: int, source: Value) -> bool:
        # gcc 12 vectorises sums over reversed reads wrongly (-O3, x86-64), so reductions read a reversed copy.
        if source not in self.inline or (
            node.prim not in CONTROL and self._streams(node, at) and not self._backwards(source)
        ):
            return True
        return node.prim in KERNELS and at in KERNELS[node.prim].strided and self.linear(source)

    def _backwards(self, value: Value) -> bool:
        node = value.node
        return value in self.inline and node is not None and (node.prim == "rev" or any(map(self._backwards, node.ins)))

    def linear(self, value: Value) -> bool:
        """Whether an inline value is a view of stored elements with constant strides."""
        while value in self.inline:
            node = value.node
            assert node is not None
            if node.prim not in _LINEAR:
                return False
            value = node.ins[0]
        return not value.scalar

    def _store(self, value: Value) -> None:
        self.inline.pop(value, None)
        self._length.pop(value, None)


def given_to(node: Node) -> Iterator[tuple[Body, list[Value | None]]]:
    """Each body of a loop or branch, with the outside value of each of its inputs; None if it changes between steps."""
    p = node.params
    if node.prim == "cond":
        for body in node.bodies["branches"]:
            yield body, list(node.ins[1:])
    elif node.prim == "scan":
        (body,) = node.bodies["jaxpr"]
        yield body, [*node.ins[: p["num_consts"]], *[None] * (len(body.inputs) - p["num_consts"])]
    elif node.prim == "while":
        (test,), (body,) = node.bodies["cond_jaxpr"], node.bodies["body_jaxpr"]
        first, second = p["cond_nconsts"], p["body_nconsts"]
        yield test, [*node.ins[:first], *[None] * (len(test.inputs) - first)]
        yield body, [*node.ins[first : first + second], *[None] * (len(body.inputs) - second)]


_LINEAR = frozenset({"transpose", "broadcast_in_dim", "slice", "squeeze", "expand_dims", "rev", "split", "reshape"})


def _only_reshapes(node: Node, value: Value) -> bool:
    """Whether the elements and their order stay the same."""
    if node.prim in ("reshape", "squeeze", "expand_dims"):
        return True
    dims = list(node.params.get("broadcast_dimensions", ()))
    return node.prim == "broadcast_in_dim" and value.size == node.ins[0].size and dims == sorted(dims)


def _only_units(node: Node) -> bool:
    return [n for n in node.ins[0].shape if n != 1] == [n for n in node.outs[0].shape if n != 1]
