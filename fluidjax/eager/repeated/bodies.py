"""Calls whose ops are known: one node of the tape stands for all of them.

What a call records is a body: a stretch of records, and what the tape holds of each op. A call that repeats one is a
single node. A backward pass that is known (see ``passes``) does not look inside; anything else asks the node for the
place of one of its outputs, and gets that of the op that computed it: the ops' own nodes are made then.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fluidjax.eager.backward.tape import UNWANTED, Node, OpNode
from fluidjax.eager.recorded.demands import is_below
from fluidjax.eager.recorded.pending import Recorder, recorder
from fluidjax.eager.recorded.stretches import Stretch
from fluidjax.eager.repeated.inner import OUTSIDE, Inner, Ref, Result
from fluidjax.eager.values import Spec, Value
from fluidjax.eager.variables.varbase import VarBase

_NONE: frozenset[int] = frozenset()


class Body:
    """What a call records.

    Attributes:
        stretch: its records.
        reads: for each variable that it reads, the code of its value if that was in the batch before, else its spec.
        flows: for each of them, whether gradients flow to it.
        leaves: for each leaf that it adds the number of the variable; None for the key of a draw.
        seed: of what it draws.
        limits: (number of a variable read, high) for numbers that must be in [0, high).
        results: the variables that it computes.
        nodes: its ops with gradients.
        outputs: for each output the number of its result, and its place: (number of the op, its output), or None.
        changed: the variables read whose values it replaces; the last outputs are what they hold afterwards.
        consumed: the outputs that its ops with gradients read: their inputs are the caller's variables.
        codes_consumed: the numbers of these.
        through: those of them that gradients flow through.
    """

    def __init__(
        self,
        stretch: Stretch,
        drawn: tuple[Sequence[int | None], int],
        reads: Sequence[int | Spec],
        flows: Sequence[bool],
        limits: Sequence[tuple[int, int]],
        results: Sequence[Result],
        nodes: Sequence[Inner],
        outputs: Sequence[tuple[int, Any]],
        changed: Sequence[int] = (),
    ) -> None:
        self.leaves, self.seed = drawn
        self.stretch, self.reads, self.flows, self.limits = stretch, tuple(reads), list(flows), tuple(limits)
        self.results, self.nodes, self.outputs = tuple(results), tuple(nodes), tuple(outputs)
        codes = {result.code: result.spec for result in results}
        self.fresh = [k for k, _ in outputs[: len(outputs) - len(changed)]]
        self.changed = list(zip(changed, [k for k, _ in outputs[len(self.fresh) :]], strict=True))
        self.values = [(result.code, result.spec) for result in results]
        # Several variables may have one value; then all are made at once.
        self._twins = [list(codes).index(result.code) for result in results] if len(codes) < len(results) else None
        self._shown = dict.fromkeys([k for k, _ in outputs])
        self._shown_values = list(codes.items()) if self._twins else [self.values[k] for k in self._shown]
        self.specs = tuple([results[k].spec for k, _ in outputs])
        self.output_of = {result: k for k, (result, _) in enumerate(outputs)}
        inputs = [(ref, p) for n in nodes for ref, p in zip(n.inputs, n.parents, strict=True) if ref in self.output_of]
        self.consumed = frozenset([self.output_of[ref] for ref, _ in inputs])
        self.codes_consumed = frozenset([results[ref].code for ref, _ in inputs])
        self.through = frozenset([self.output_of[ref] for ref, parent in inputs if parent is not UNWANTED])
        self._left: dict[frozenset[int], frozenset[int]] = {}

    def left(self, gone: frozenset[int]) -> frozenset[int]:
        """The results that the gradients of its ops other than these read."""
        found = self._left.get(gone)
        if found is None:
            rest = [node for n, node in enumerate(self.nodes) if n not in gone]
            read = [ref for node in rest for ref in (*node.inputs, *[k for _, k in node.saved]) if ref >= 0]
            found = self._left[gone] = frozenset(read)
        return found

    def fits(self, recorder: Recorder, variables: Sequence[Any], values: Sequence[Value]) -> bool:
        """Whether the values of the variables are such as those read before."""
        serial = recorder.serial
        for value, expected in zip(values, self.reads, strict=True):
            if expected.__class__ is int:
                if value.serial != serial or value.index != expected:
                    return False
            elif value.serial == serial or value.array is None or value.spec is not expected:
                return False
        if [var._stop_gradient is False for var in variables] != self.flows:
            return False
        for k, high in self.limits:
            array = values[k].array
            if array.__class__ is not np.ndarray or not is_below(array, high):
                return False
        return len({*map(id, values)}) == len(values)

    def run(
        self, recorder: Recorder, variables: Sequence[Any], values: Sequence[Value], bases: tuple[int, int]
    ) -> list[VarBase] | None:
        """The outputs, for variables that fit; None, without effect, if the batch cannot take it.

        Args:
            bases: the next numbers of names, of the tracer and of ``unique_name``.
        """
        if not recorder.takes(self.stretch.ops):
            return None
        seed = self.seed
        leaves = [recorder.key(seed) if k is None else values[k] for k in self.leaves]
        return self.record(recorder, variables, leaves, bases, ())

    def record(
        self,
        recorder: Recorder,
        variables: Sequence[Any],
        leaves: Sequence[Value],
        bases: tuple[int, int],
        given: Sequence[Any],
    ) -> list[VarBase]:
        """The outputs; ``given``: variables that become these, if there are any already, None for one that is gone."""
        recorder.add_leaves(leaves)
        recorder.extend(self.stretch.end)
        made = recorder.outputs_of(self._shown_values)
        if self._twins is not None:
            held: list[Any] = [made[k] for k in self._twins]
        else:
            held = [None] * len(self.results)
            for k, value in zip(self._shown, made, strict=True):
                held[k] = value
        outputs = []
        for k in self.fresh:
            result = self.results[k]
            outputs.append(VarBase._of(result.name(bases), held[k], result.stop_gradient))
        for n, var in enumerate(given):
            if var is not None:
                var._held, outputs[n] = outputs[n]._held, var
        for at, k in self.changed:
            var = variables[at]
            if var._held.__class__ is Value:
                var._held = held[k]
            else:
                var._value = held[k]  # into the array that it shares memory with
            var._place = None
            outputs.append(var)
        if self.nodes:
            node = CallNode(self, tuple(variables), held, outputs, bases)
            if len(made) < len(held):
                recorder.calls.append(weakref.ref(node))
            for k, (var, (_, place)) in enumerate(zip(outputs, self.outputs, strict=True)):
                if place is not None:
                    var._place = node, k
        return outputs


class CallNode(Node):
    """What the tape holds of a call.

    Attributes:
        plan: the body.
        serial: the number of the batch that it is part of.
        held: the values of the results. While the batch is pending, None for those that nobody has asked for.
        outputs: weak references to the variables that the call returned.
        passed: the numbers of the ops that a known pass visited; False before one.
        gone: those that are freed, while others are not.
        places: of the outputs, once the ops have nodes of their own.
    """

    __slots__ = ("__weakref__", "bases", "gone", "held", "outputs", "places", "plan", "serial")

    def __init__(
        self, body: Body, variables: Sequence[Any], held: list[Value], outputs: Sequence[Any], bases: tuple[int, int]
    ) -> None:
        parents = [v._place if flows else UNWANTED for v, flows in zip(variables, body.flows, strict=True)]
        super().__init__(variables, parents, body.specs)
        self.plan, self.held, self.bases, self.serial = body, held, bases, recorder.serial
        self.outputs = [weakref.ref(var) for var in outputs]
        self.places: list[Any] | None = None
        self.gone: frozenset[int] = _NONE

    def at(self, k: int) -> tuple[Node, int]:
        """See Node; the ops get nodes of their own."""
        if self.freed:
            return self, k
        if self.places is None:
            self._expand()
        return self.places[k]  # type: ignore[index]

    def free(self) -> None:
        """See Node."""
        super().free()
        self.held = []

    def touched(self, k: int) -> None:
        """See Node; an op that has read the variable gets a node of its own, which refers to it."""
        if k in self.plan.consumed and not self.freed and self.places is None:
            self._expand()

    def can_pass(self, inner: frozenset[int]) -> bool:
        """Whether a known pass over these ops finds them, and the outputs that they read, as they were."""
        if not self.gone.isdisjoint(inner):
            return False
        if not self.plan.through:
            return True
        # What a pass left in a variable that is gone may have been stopped: the op's own node would know.
        there = [reference() for reference in map(self.outputs.__getitem__, self.plan.through)]
        return not self.passed and not any([var is not None and var._keeps_gradient() for var in there])

    def pass_over(self, inner: frozenset[int], retain: bool) -> None:
        """A known pass visited these ops, which are freed unless they are retained."""
        passed: Any = self.passed
        self.passed = inner | passed if passed else inner  # type: ignore[assignment]
        if retain:
            return
        gone = inner | self.gone
        if len(gone) == len(self.plan.nodes):
            self.freed, self.inputs, self.parents, self.held = True, (), (), []  # calling ``free`` takes longer
            return
        self.gone, left = gone, self.plan.left(gone)
        held: Any = [value if k in left else None for k, value in enumerate(self.held)]
        self.held = held

    def took_zeros(self, k: int) -> bool:
        """See Node."""
        n, output = self.plan.outputs[k][1]
        passed: Any = self.passed
        if not passed or n not in passed:
            return False
        return output in self.plan.nodes[n].plan.takes

    def edges(self) -> list[tuple[Any, Any]]:
        """See Node; only of one that is freed."""
        return []

    def gradients(self, engine: Any, grads: list[Any]) -> Iterable[Any]:
        """See Node; passes go over its ops instead."""
        raise NotImplementedError

    def value(self, k: int) -> Any:
        """The value of a result: its variable's, while that exists."""
        at = self.plan.output_of.get(k)
        var = None if at is None else self.outputs[at]()
        if var is not None:
            return var._value
        self.hold()
        return self.held[k]

    def hold(self) -> None:
        """Make the values that nobody has asked for, and gradients may read."""
        missing = [k for k, value in enumerate(self.held) if value is None]  # of one that is freed or expanded, none
        if self.gone:
            missing = [k for k in missing if k in self.plan.left(self.gone)]
        for k, value in zip(missing, recorder.outputs_of([self.plan.values[k] for k in missing]), strict=True):
            self.held[k] = value

    def _expand(self) -> None:
        self.hold()
        body, held, outputs = self.plan, self.held, [reference() for reference in self.outputs]
        made: list[Any] = []
        fresh = set()
        for k, result in enumerate(body.results):
            at = body.output_of.get(k)
            var = None if at is None else outputs[at]
            if var is None:
                fresh.add(k)
                var = VarBase._of(result.name(self.bases), held[k], result.stop_gradient)
            made.append(var)
        nodes: list[InnerNode] = []
        for n, inner in enumerate(body.nodes):
            inputs = tuple([made[ref] if ref >= 0 else self.inputs[~ref] for ref in inner.inputs])
            parents = tuple([self._parent(p, ref, nodes) for p, ref in zip(inner.parents, inner.inputs, strict=True)])
            node = InnerNode(inner.kernel, inputs, parents, inner.specs, inner.plan)
            node.order = self.order + (n + 1) / (len(body.nodes) + 1)  # type: ignore[assignment]  # after it, before the next
            node.call, node.number = self, n
            node.saved = {k: (weakref.ref(made[ref]), held[ref]) for k, ref in inner.saved} or None
            for k, parent in enumerate(inner.parents):
                if parent.__class__ is tuple and inner.inputs[k] in fresh:  # the caller's may be elsewhere by now
                    made[inner.inputs[k]]._place = nodes[parent[0]], parent[1]
            nodes.append(node)
        self.places = [None if place is None else (nodes[place[0]], place[1]) for _, place in body.outputs]
        for k, var in enumerate(outputs):
            if var is not None and var._place is not None and var._place[0] is self:
                var._place = self.places[k]
        self.held, self.inputs, self.parents = [], (), ()
        passed: Any = self.passed
        for n in passed or ():
            nodes[n].passed = True
        for n in self.gone:
            nodes[n].free()

    def _parent(self, parent: Any, ref: Ref, nodes: Sequence[Node]) -> Any:
        if parent is OUTSIDE:
            return self.parents[~ref]
        return (nodes[parent[0]], parent[1]) if parent.__class__ is tuple else parent


class InnerNode(OpNode):
    """A node of an op within a call.

    Attributes:
        call: the call's node.
        number: of the op within its body.
    """

    __slots__ = ("call", "number")
    call: CallNode
    number: int
