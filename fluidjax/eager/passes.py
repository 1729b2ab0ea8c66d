"""Repeating a backward pass without its Python.

What a pass records follows from the nodes that its root depends on and from what they read. So if a batch holds the
same records as before, and the nodes are connected in the same way, the pass records the same ops and gives the
same variables their gradients. Everything that could differ is checked each time; if it does, the pass runs afresh.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from fluidjax.eager.pending import Recorder
from fluidjax.eager.stretches import Mark, Source, Stretch, source_of, value_at
from fluidjax.eager.tape import UNWANTED, OpNode, key_of
from fluidjax.eager.values import Spec, Value


class Visit(NamedTuple):
    """What a pass finds at a node.

    Attributes:
        plan, specs: of the node.
        edges: for each input that a gradient could flow to: its number, whether one does, the number of the node that
            created it (-1 for leaves), and the number of that node's output or of the leaf.
        reads: ("i" or "o", k) for each input and output that the gradient reads.
    """

    plan: Any
    specs: list[Any]
    edges: tuple[tuple[int, bool, int, int], ...]
    reads: tuple[tuple[str, int], ...]


class Gradient(NamedTuple):
    """A gradient computed by a pass.

    Attributes:
        visit, input: the location of its variable; the root if ``visit`` is negative.
        code: the number of the output.
        spec: its spec.
        source: its source, if it is not an output.
    """

    visit: int
    input: int
    code: int
    spec: Spec
    source: Source | None


class Known(NamedTuple):
    """A pass from output `k` of a node.

    Attributes:
        stretch: what it records; the values that this reads are the root's and those of each visit.
    """

    k: int
    visits: list[Visit]
    stretch: Stretch
    gradients: list[Gradient]

    def run(self, recorder: Recorder, root: Any, retain: bool) -> bool:
        """Repeat the pass from another root; returns False, without effect, if anything differs."""
        if root._place[1] != self.k or not recorder.takes(self.stretch.ops):
            return False
        reads = [root._value]
        nodes = self._walk(root._place[0], reads)
        if nodes is None or not self.stretch.register(recorder, reads):
            return False
        variables = [root if at < 0 else nodes[at].inputs[i] for at, i, _, _, _ in reversed(self.gradients)]
        for node in nodes:
            node.passed = True
            if not retain:  # as ``free`` does: a call for each node takes longer than the rest
                node.freed, node.inputs, node.parents, node.saved = True, (), (), None
        recorder.extend(self.stretch.end)
        self._give(recorder, reads, variables)
        return True

    def _walk(self, first: Any, reads: list[Any]) -> list[Any] | None:
        """The nodes, None if one differs; the values that they read are added to `reads`."""
        nodes: list[Any] = [first, *[None] * (len(self.visits) - 1)]
        leaves: list[Any] = []
        last = None
        for node, (plan, specs, edges, wanted) in zip(nodes, self.visits, strict=True):  # the list grows meanwhile
            if node.__class__ is not OpNode or node.plan is not plan or node.specs != specs:
                return None
            if node.freed or (last is not None and node.order >= last):
                return None
            last, inputs, parents = node.order, node.inputs, node.parents
            for i, flows, at, k in edges:
                place = parents[i]
                if (inputs[i]._stop_gradient is False) is not flows:
                    return None
                if not flows:
                    continue
                if place is None:
                    if at >= 0 or not _is_leaf(leaves, k, inputs[i]):
                        return None
                elif at < 0 or place[1] != k:
                    return None
                elif nodes[at] is None:
                    nodes[at] = place[0]
                elif nodes[at] is not place[0]:
                    return None
            for kind, k in wanted:
                if kind == "i":
                    held = inputs[k]._held
                    reads.append(held if held.__class__ is Value else inputs[k]._value)
                else:
                    reads.append(node.output(k))
        return nodes if len(set(map(id, leaves))) == len(leaves) else None

    def _give(self, recorder: Recorder, reads: list[Any], variables: list[Any]) -> None:
        """Give the variables that are still referenced their gradients; the first variable is the last of the list."""
        made: dict[int, Value] = {}
        count = sys.getrefcount
        for _, _, code, spec, source in self.gradients:
            var = variables.pop()
            if count(var) <= 2:  # referenced only here
                continue
            if source is not None:
                var._grad = value_at(source, reads)
                continue
            if code not in made:
                made[code] = recorder.output(code, spec)
            var._grad = made[code]


def _is_leaf(leaves: list[Any], k: int, var: Any) -> bool:
    """Whether a variable is leaf `k`, or the next one if there are only `k` so far."""
    if k == len(leaves):
        leaves.append(var)
        return True
    return leaves[k] is var


class Watched:
    """Observes a running pass so that it can be repeated.

    Args:
        recorder: records the ops.
        root: the variable that the pass starts from; an output of a node.
    """

    def __init__(self, recorder: Recorder, root: Any) -> None:
        self.root, self.place, self.value = root, root._place, root._value
        self.mark = Mark(recorder)

    def known(self, nodes: Sequence[Any], found: dict[Any, tuple[Any, Any]]) -> Known | None:
        """The pass that ran over `nodes` and found gradients; None if it cannot be repeated."""
        if any(node.__class__ is not OpNode or node.forward is not None for node in nodes):
            return None
        visits = _visits(nodes)
        reads = [self.value]
        for node, visit in zip(nodes, visits, strict=True):
            reads += [node.inputs[k]._value if kind == "i" else node.output(k) for kind, k in visit.reads]
        stretch = self.mark.stretch(reads)
        gradients = None if stretch is None else self._gradients(nodes, found, reads)
        return None if gradients is None else Known(self.place[1], visits, stretch, gradients)  # type: ignore[arg-type]

    def _gradients(self, nodes: Sequence[Any], found: Any, reads: list[Any]) -> list[Gradient] | None:
        where = {key_of(self.root, self.place): (-1, 0)}
        for n, node in enumerate(nodes):
            for i, (var, place) in enumerate(zip(node.inputs, node.parents, strict=True)):
                if place is not UNWANTED:
                    where.setdefault(key_of(var, place), (n, i))
        gradients = []
        for key, (_, grad) in found.items():
            made = self.mark.made(grad)
            source = None if made else source_of(grad, reads)
            if key not in where or (source is None and not made):
                return None
            gradients.append(Gradient(*where[key], grad.index, grad.spec, source))
        return gradients


def _visits(nodes: Sequence[Any]) -> list[Visit]:
    numbers = {id(node): n for n, node in enumerate(nodes)}
    leaves: dict[int, int] = {}
    visits = []
    for node in nodes:
        edges = []
        for i, (var, place) in enumerate(zip(node.inputs, node.parents, strict=True)):
            flows = place is not UNWANTED and var._stop_gradient is False
            if place is UNWANTED or (flows and place is not None and id(place[0]) not in numbers):
                continue  # it gets no gradient
            if not flows or place is None:
                edges.append((i, flows, -1, leaves.setdefault(id(var), len(leaves)) if flows else 0))
            else:
                edges.append((i, True, numbers[id(place[0])], place[1]))
        reads = dict.fromkeys([s for step in node.plan.steps for s in step.sources if s[0] in ("i", "o")])
        visits.append(Visit(node.plan, node.specs, tuple(edges), tuple(reads)))
    return visits
