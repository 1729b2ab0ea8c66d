"""The order in which the ops of a graph may run, and its connected components."""

from __future__ import annotations

from typing import Protocol

from fluidjax.base.errors import EnforceNotMet
from fluidjax.ir.nodes import Node


class Graph(Protocol):
    """Anything with nodes."""

    def _in_order(self) -> list[Node]:
        """All nodes in order of creation."""


def _before(graph: Graph) -> dict[Node, list[Node]]:
    """Op -> the ops that write what it reads, by node number."""
    found = {}
    for op in sorted((node for node in graph._in_order() if node.is_op()), key=Node.id):
        writers = {writer for var in op._inputs for writer in var._inputs}
        found[op] = sorted(writers, key=Node.id)
    return found


def build_adjacency_list(graph: Graph) -> dict[Node, set[Node]]:
    """Op -> the ops that must run before it."""
    return {op: set(before) for op, before in _before(graph).items()}


def topology_sort(graph: Graph) -> list[Node]:
    """The ops in topological order, with ties in order of creation.

    Raises EnforceNotMet if the graph has a cycle.
    """
    before = _before(graph)
    if _circular(before):
        raise EnforceNotMet("topology_sort: the graph has a circle. Expected none. Look at it with draw().")
    found: dict[Node, None] = {}
    for op in before:
        pending = [(op, iter(before[op]))]
        while pending and op not in found:
            at, rest = pending[-1]
            following = next((other for other in rest if other not in found), None)
            if following is not None:
                pending.append((following, iter(before[following])))
            else:
                found[pending.pop()[0]] = None
    return list(found)


def has_circle(graph: Graph) -> bool:
    """Whether the graph has a cycle."""
    return _circular(_before(graph))


def _circular(before: dict[Node, list[Node]]) -> bool:
    waiting = {op: len(ops) for op, ops in before.items()}
    after: dict[Node, list[Node]] = {}
    for op, ops in before.items():
        for other in ops:
            after.setdefault(other, []).append(op)
    ready = [op for op, count in waiting.items() if not count]
    for op in ready:
        for other in after.get(op, ()):
            waiting[other] -= 1
            if not waiting[other]:
                ready.append(other)
    return len(ready) < len(before)


def graph_num(graph: Graph) -> int:
    """The number of connected components."""
    left = dict.fromkeys(graph._in_order())
    count = 0
    while left:
        count += 1
        pending = [next(iter(left))]
        while pending:
            node = pending.pop()
            if node in left:
                del left[node]
                pending += node._inputs + node._outputs
    return count
