"""Repeating a backward pass without its Python.

What a pass records follows from the nodes that its root depends on and from what they read. So if a batch holds the
same records as before, and the nodes are connected in the same way, the pass records the same ops and gives the
same variables their gradients. Everything that could differ is checked each time; if it does, the pass runs afresh.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from fluidjax.eager.backward.tape import UNWANTED, OpNode, key_of, resolved
from fluidjax.eager.recorded.pending import Recorder
from fluidjax.eager.recorded.stretches import Mark, Source, Stretch, source_of, value_at
from fluidjax.eager.repeated.bodies import CallNode, InnerNode
from fluidjax.eager.values import Spec, Value


class Visit(NamedTuple):
    """What a pass finds at a node, that of an op or of a call (see ``bodies``).

    Attributes:
        plan, specs: of the node.
        edges: for each input that a gradient flows to: its number, the number of the node that created it (-1 for
            leaves), and the number of that node's output or of the leaf.
        reads: ("i" or "o", k) for each input and output that the gradient reads; of a call ("o", k) for each result.
        inner: of a call, the numbers of the ops that are visited; True for an op.
        here: whether it is a call of the batch that the pass is part of. It computed the same values then, and only
            those that it returned may have been replaced.
    """

    plan: Any
    specs: list[Any]
    edges: tuple[tuple[int, int, int], ...]
    reads: tuple[tuple[str, int], ...]
    inner: Any = True
    here: bool = False


class Gradient(NamedTuple):
    """A gradient computed by a pass.

    Attributes:
        visit, input: the location of its variable: the root if ``visit`` is negative; ~k for output k of a call.
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
        nodes = self._walk(root._place[0], reads, recorder.serial)
        if nodes is None or not self.stretch.register(recorder, reads):
            return False
        variables = [
            root if at < 0 else nodes[at].inputs[i] if i >= 0 else nodes[at].outputs[~i]()
            for at, i, _, _, _ in reversed(self.gradients)
        ]
        for node, visit in zip(nodes, self.visits, strict=True):
            if node.__class__ is CallNode:
                node.pass_over(visit.inner, retain)
                continue
            node.passed = True
            if not retain:
                node.freed, node.inputs, node.parents = True, (), ()  # as ``free`` does: calling it takes longer
                node.saved = None
        recorder.extend(self.stretch.end)
        recorder.parts.append(self)
        self._give(recorder, reads, variables)
        return True

    def _walk(self, first: Any, reads: list[Any], serial: int) -> list[Any] | None:
        """The nodes, None if one differs; the values that they read are added to `reads`."""
        nodes: list[Any] = [first, *[None] * (len(self.visits) - 1)]
        leaves: list[Any] = []
        last = None
        for node, visit in zip(nodes, self.visits, strict=True):  # the list grows meanwhile
            plan, specs, edges, wanted, inner, here = visit
            kind = node.__class__
            if (kind is not OpNode and kind is not CallNode) or node.plan is not plan or node.specs != specs:
                return None
            if kind is CallNode and (node.places is not None or (node.serial == serial) is not here):
                return None
            if node.freed or (last is not None and node.order >= last):
                return None
            if kind is CallNode and (node.gone or plan.through) and not node.can_pass(inner):
                return None
            last, inputs, parents = node.order, node.inputs, node.parents
            for i, at, k in edges:
                place = parents[i]
                if inputs[i]._keeps_gradient():
                    return None
                if place is None:
                    if at >= 0 or not _is_leaf(leaves, k, inputs[i]):
                        return None
                elif at < 0 or place[1] != k:
                    return None
                elif nodes[at] is None:
                    nodes[at] = place[0]
                elif nodes[at] is not place[0]:
                    return None
            output = node.output if kind is OpNode else node.value
            for which, k in wanted:
                if which == "i":
                    held = inputs[k]._held
                    reads.append(held if held.__class__ is Value else inputs[k]._value)
                else:
                    reads.append(output(k))
        return nodes if len(set(map(id, leaves))) == len(leaves) else None

    def _give(self, recorder: Recorder, reads: list[Any], variables: list[Any]) -> None:
        """Give the variables that are still referenced their gradients; the first variable is the last of the list."""
        made: dict[int, Value] = {}
        count = sys.getrefcount
        for _, _, code, spec, source in self.gradients:
            var = variables.pop()
            if var is None or count(var) <= 2:  # referenced only here
                continue
            if source is None and code not in made:
                made[code] = recorder.output(code, spec)
            var._set_gradient(made[code] if source is None else value_at(source, reads))


class Passes:
    """The passes that are known from one point, the last one that came first.

    Attributes:
        observed, repeated: how many were, of all that came here.
    """

    __slots__ = ("_known", "observed", "repeated")

    def __init__(self) -> None:
        self._known: list[Known] = []
        self.observed = self.repeated = 0

    def run(self, recorder: Recorder, root: Any, retain: bool) -> bool:
        """Repeat one of them; False, without effect, if none fits."""
        known = self._known
        for k, each in enumerate(known):
            if each.run(recorder, root, retain):
                if k:
                    known.insert(0, known.pop(k))
                self.repeated += 1
                return True
        return False

    def observe(self) -> bool:
        """Whether a pass that is not known is to be observed: where few of them recur, no more is."""
        if self.observed >= _PASSES and self.observed * _WORTH > self.repeated:
            return False
        self.observed += 1
        return True

    def add(self, known: Known) -> None:
        """One more is known; the one that did not come for longest is forgotten if there are too many."""
        self._known.insert(0, known)
        del self._known[_PASSES:]


_PASSES = 32  # passes known for one point; many begin at the start of a batch
_WORTH = 2  # of all that are observed there, each must have recurred so often on the average, for more to be


def repeated(recorder: Recorder, root: Any, retain: bool) -> bool:
    """Repeat a pass known from here; False, without effect, if there is none."""
    passes = recorder.point.passes
    return passes is not None and passes.run(recorder, root, retain)


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
        if any(node.__class__ not in (OpNode, InnerNode) or node.forward is not None for node in nodes):
            return None
        visited = _Visited(nodes, self.mark.serial)
        if visited.stopped:
            return None
        reads = [self.value, *visited.reads]
        stretch = self.mark.stretch(reads)
        gradients = None if stretch is None else self._gradients(visited, found, reads)
        k = visited.outer(self.place)[1]
        return None if gradients is None else Known(k, visited.visits, stretch, gradients)  # type: ignore[arg-type]

    def _gradients(self, visited: _Visited, found: Any, reads: list[Any]) -> list[Gradient] | None:
        where = {**visited.where, key_of(self.root, self.place): (-1, 0)}
        gradients = []
        for key, (_, grad) in found.items():
            made = self.mark.made(grad)
            source = None if made else source_of(grad, reads)
            if key in visited.hidden and key not in where:
                continue
            if key not in where or (source is None and not made):
                return None
            gradients.append(Gradient(*where[key], grad.index, grad.spec, source))
        return gradients


class _Visited:
    """The nodes of a pass, with the ops of a call as one.

    Attributes:
        visits: what the pass finds at each.
        reads: the values that it reads there.
        where: version of a variable -> (visit, input).
        hidden: versions of variables that exist within calls only.
        stopped: whether a variable was stopped after an op had read it.
    """

    def __init__(self, nodes: Sequence[Any], serial: int) -> None:
        self._serial = serial
        groups: dict[int, list[Any]] = {}
        for node in nodes:
            groups.setdefault(id(_outermost(node)), []).append(node)
        self._numbers = {mark: n for n, mark in enumerate(groups)}
        self._leaves: dict[int, int] = {}
        self.visits: list[Visit] = []
        self.reads: list[Any] = []
        self.where: dict[Any, tuple[int, int]] = {}
        self.hidden: set[Any] = set()
        self.stopped = False
        for n, group in enumerate(groups.values()):
            self.visits.append(self._op(n, group[0]) if group[0].__class__ is OpNode else self._call(n, group))

    def outer(self, place: Any) -> tuple[int, int]:
        """The number of the node at a place, and of its output; -1 for a node that the pass did not visit."""
        node, k = resolved(place)
        if node.__class__ is InnerNode:
            outputs = [spot for _, spot in node.call.plan.outputs]
            k = outputs.index((node.number, k)) if (node.number, k) in outputs else -1
        return self._numbers.get(id(_outermost(node)), -1), k

    def _op(self, n: int, node: Any) -> Visit:
        edges = []
        for i, (var, place) in enumerate(zip(node.inputs, node.parents, strict=True)):
            edges += self._edge(n, i, var, place)
        reads = dict.fromkeys([s for step in node.plan.steps for s in step.sources if s[0] in ("i", "o")])
        self.reads += [node.inputs[k]._value if kind == "i" else node.output(k) for kind, k in reads]
        return Visit(node.plan, node.specs, tuple(edges), tuple(reads))

    def _edge(self, n: int, i: int, var: Any, place: Any) -> list[tuple[int, int, int]]:
        if place is UNWANTED:
            return []
        self.where.setdefault(key_of(var, place), (n, i))
        self.stopped = self.stopped or var._keeps_gradient()
        if place is None:
            return [(i, -1, self._leaves.setdefault(id(var), len(self._leaves)))]
        at, k = self.outer(place)
        return [] if at < 0 else [(i, at, k)]  # [] where it gets no gradient

    def _call(self, n: int, group: list[Any]) -> Visit:
        body, here = group[0].call.plan, group[0].call.serial == self._serial
        edges: dict[int, list[Any]] = {}
        reads: dict[tuple[str, int], Any] = {}
        for node in group:
            inner = body.nodes[node.number]
            for ref, var, place in zip(inner.inputs, node.inputs, node.parents, strict=True):
                if ref < 0 and ~ref not in edges and place is not UNWANTED:
                    edges[~ref] = self._edge(n, ~ref, var, place)
                elif ref in body.output_of and place is not UNWANTED:
                    self.where.setdefault(key_of(var, place), (n, ~body.output_of[ref]))
                    self.stopped = self.stopped or var._keeps_gradient()
                elif ref >= 0 and place is not UNWANTED:
                    self.hidden.add(key_of(var, place))
            saved = dict(inner.saved)
            for kind, k in [s for step in node.plan.steps for s in step.sources if s[0] in ("i", "o")]:
                ref = inner.inputs[k] if kind == "i" else saved[k]
                if here and ref >= 0 and ref not in body.output_of:
                    continue
                value = node.inputs[k]._value if kind == "i" else node.output(k)
                reads["o" if ref >= 0 else "i", ref if ref >= 0 else ~ref] = value
        self.reads += reads.values()
        flat = [edge for found in edges.values() for edge in found]
        inner = frozenset([node.number for node in group])
        return Visit(body, body.specs, tuple(flat), tuple(reads), inner, here)


def _outermost(node: Any) -> Any:
    return node.call if node.__class__ is InnerNode else node
