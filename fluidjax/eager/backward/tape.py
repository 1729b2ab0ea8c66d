"""The tape: which op computed which variable from which, and the backward pass over it.

The gradient of an op is what its grad maker writes, the one that ``append_backward`` uses, compiled once per
kernel and set of inputs that need a gradient. The tape holds variables, not values: if a value is set between the
forward and backward passes, the new one is used.
"""

from __future__ import annotations

import heapq
import itertools
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

from fluidjax.base.errors import EnforceNotMet, explain
from fluidjax.eager.backward.engine import Engine
from fluidjax.eager.backward.plans import plan_of
from fluidjax.eager.kernels import Kernel
from fluidjax.eager.values import Value, fresh_zeros, zeros

_counter = itertools.count()


class Node:
    """What the tape holds of one op that ran: variables, and how gradients pass through it.

    Attributes:
        order: increases from op to op.
        inputs: the input variables; () once the backward pass has used them up.
        parents: the place on the tape of each input at that time: a node and the number of its output; None for leaves,
            UNWANTED if no gradient is needed.
        passed: whether a backward pass has visited it and given variables their gradients.
        specs: the specs of the outputs, None for unused ones.
    """

    __slots__ = ("freed", "inputs", "order", "parents", "passed", "specs")

    def __init__(self, inputs: Sequence[Any], parents: Sequence[Any], specs: Sequence[Any]) -> None:
        self.order = next(_counter)
        self.inputs, self.parents, self.specs = inputs, parents, specs
        self.freed = self.passed = False

    def free(self) -> None:
        """Release all variables."""
        self.freed = True
        self.inputs = self.parents = ()

    def at(self, k: int) -> tuple[Node, int]:
        """The place of output `k` for a pass: this node itself, unless it stands for others."""
        return self, k

    def took_zeros(self, k: int) -> bool:
        """Whether a backward pass read zeros for the gradient of output `k` if there was none."""
        return False

    def touched(self, k: int) -> None:
        """The variable of output `k` is about to get another value, or to be stopped, or the contrary."""

    def edges(self) -> list[tuple[Any, Place]]:
        """(variable, its place) for everything that gradients of this node may flow to."""
        return [(v, p) for v, p in zip(self.inputs, self.parents, strict=True) if p is not UNWANTED]

    def gradients(self, engine: Engine, grads: list[Any]) -> Iterable[tuple[Any, Place, Any]]:
        """(input variable, its place, a gradient of it) for gradients of the outputs, None if there is none."""
        raise NotImplementedError


class OpNode(Node):
    """A node of an op that has a gradient.

    Attributes:
        plan: its gradient.
        saved: outputs that the gradient reads, by number: a weak reference to the variable, and its value.
        forward: for a gradient op, the node of the op that it differentiates.
    """

    __slots__ = ("forward", "kernel", "plan", "saved")

    def __init__(
        self,
        kernel: Kernel,
        inputs: Sequence[Any],
        parents: Sequence[Any],
        specs: Sequence[Any],
        plan: Any,
        forward: OpNode | None = None,
    ) -> None:
        self.order, self.freed, self.passed = next(_counter), False, False
        self.inputs, self.parents, self.specs = inputs, parents, specs
        self.kernel, self.forward, self.plan = kernel, forward, plan
        self.saved: dict[int, Any] | None = None

    def save(self, outputs: Sequence[Any], results: Sequence[Any]) -> None:
        """Store the outputs that the gradient reads."""
        self.saved = {k: (weakref.ref(outputs[k]), results[k]) for k in self.plan.reads}

    @staticmethod
    def plan_of(kernel: Kernel, parents: Sequence[Any], forward: OpNode | None = None) -> Any:
        """The gradient of a kernel whose inputs are at these places."""
        wanted = tuple([p is not UNWANTED for p in parents])
        origin = None if forward is None else forward.kernel
        try:
            return kernel.plans[wanted, origin]
        except KeyError:
            return plan_of(kernel, wanted, origin)

    def free(self) -> None:
        """See Node."""
        self.freed, self.inputs, self.parents = True, (), ()
        self.saved = self.forward = None

    def took_zeros(self, k: int) -> bool:
        """See Node."""
        return self.passed and k in self.plan.takes

    def edges(self) -> list[tuple[Any, Place]]:
        """See Node."""
        return super().edges() + ([] if self.forward is None else self.forward.edges())

    def gradients(self, engine: Engine, grads: list[Any]) -> Iterable[tuple[Any, Place, Any]]:
        """See Node. There are none where it takes none of these: of Softmax beside the Loss, of a saved mean."""
        found: list[tuple[Any, Place, Any]] = []
        takes = self.plan.takes
        if takes and all(grads[k] is None for k in takes):
            return found
        temporary: dict[str, Any] = {}
        for kernel, sources, targets in self.plan.steps:
            flat = [
                self.inputs[k]
                if kind == "i"
                else grads[k]
                if kind == "g" and grads[k] is not None
                else self._read(engine, kind, k, temporary)
                for kind, k in sources
            ]
            for target, result in zip(targets, engine.run(kernel, flat, self), strict=True):
                if target is None or result is None:
                    continue
                kind, k = target
                if kind == "t":
                    temporary[k] = result
                elif kind == "i":
                    found.append((self.inputs[k], self.parents[k], result))
                else:
                    assert self.forward is not None
                    found.append((self.forward.inputs[k], self.forward.parents[k], result))
        return found

    def output(self, k: int) -> Any:
        """The value of a saved output: its variable's, while that exists."""
        reference, value = self.saved[k]  # type: ignore[index]
        var = reference()
        if var is not None:
            value = var._held if var._held.__class__ is Value else var._value
        return value

    def _read(self, engine: Engine, kind: str, k: Any, temporary: dict[str, Any]) -> Any:
        if kind == "g":
            return zeros(self.specs[k])
        if kind == "o":
            assert self.saved is not None
            reference, value = self.saved[k]
            var = reference()
            if value is None:
                raise EnforceNotMet(
                    explain(
                        f"backward: op {self.kernel.type} kept nothing for its gradient",
                        "an op that ran in training mode",
                        "one that ran with is_test",
                        "call train() on its layer, or compute it under no_grad()",
                    )
                )
            return value if var is None else var
        if kind == "f":
            assert self.forward is not None
            return self.forward.inputs[k]
        return temporary[k]


Place = tuple[Node, int] | None  # on the tape: a node and the number of its output; None for leaves
UNWANTED: Any = object()  # in place of an input that needs no gradient


def places(inputs: Sequence[Any]) -> tuple[Any, ...]:
    """The place of each variable, UNWANTED if no gradient flows to it."""
    return tuple([v._place if v._stop_gradient is False else UNWANTED for v in inputs])


def resolved(place: Any) -> Any:
    """A place as passes see it (see ``Node.at``)."""
    return place if place is None or place is UNWANTED else place[0].at(place[1])


def key_of(var: Any, place: Place) -> Any:
    """Identifies one version of a variable in a backward pass."""
    place = resolved(place)
    return id(var) if place is None else (id(place[0]), place[1])


class Pass:
    """One backward pass.

    Args:
        engine: how ops run.
        roots: the variables it starts from, each with its gradient (in the engine's form).
        retain: whether the tape is kept for another pass.
        towards: versions of variables; if given, only what leads to these is run.
        constants: versions of variables that block gradients.

    Attributes:
        found: version -> (variable, gradient).
        used: the nodes visited, the last ones first.
    """

    def __init__(
        self,
        engine: Engine,
        roots: Sequence[tuple[Any, Any]],
        *,
        retain: bool = False,
        towards: Iterable[Any] | None = None,
        constants: Iterable[Any] = (),
    ) -> None:
        self.engine, self.retain = engine, retain
        self.constants = frozenset(constants)
        self.leading = None if towards is None else _leading([var for var, _ in roots], set(towards))
        self.parts: dict[Any, list[Any]] = {}  # version -> [variable, gradient, gradient ...]
        self.found: dict[Any, tuple[Any, Any]] = {}
        self.used: list[Node] = []
        self.queue: list[tuple[int, Node]] = []
        self.queued: set[Node] = set()
        for var, grad in roots:
            self._add(var, var._place, grad)

    def run(self) -> dict[Any, tuple[Any, Any]]:
        """Run the ops of all gradients that depend on the roots; returns ``found``."""
        queue, used = self.queue, self.used
        while queue:
            node = heapq.heappop(queue)[1]
            used.append(node)
            mark = id(node)
            grads = [self._settle((mark, k)) for k in range(len(node.specs))]
            for var, place, grad in node.gradients(self.engine, grads):
                if self.leading is not None or not var._keeps_gradient():
                    self._add(var, place, grad)
                else:
                    self._block(var, place)
        for key in list(self.parts):
            self._settle(key)
        return self.found

    def end(self) -> None:
        """Release the tape, unless it is retained."""
        for node in self.used:
            node.passed = node.passed or self.leading is None
            if not self.retain:
                node.free()

    def _add(self, var: Any, place: Place, grad: Any) -> None:
        if place is not None and place[0].__class__ is not OpNode:
            place = place[0].at(place[1])
        key = id(var) if place is None else (id(place[0]), place[1])
        if key in self.constants:
            return
        parts = self.parts.get(key)
        if parts is not None:
            parts.append(grad)
            return
        self.parts[key] = [var, grad]
        if place is None:
            return
        node = place[0]
        if node not in self.queued and (self.leading is None or node in self.leading):
            if node.freed:
                raise EnforceNotMet(_FREED)
            self.queued.add(node)
            heapq.heappush(self.queue, (-node.order, node))

    def _block(self, var: Any, place: Place) -> None:
        """At a variable stopped after ops had read it: its gradient, or zeros, stays and is passed on, as in Fluid."""
        held = var._gradient_value()
        if (place is not None or held is None) and key_of(var, place) not in self.parts:
            self._add(var, place, fresh_zeros(var._spec) if held is None else held)

    def _settle(self, key: Any) -> Any:
        parts = self.parts.pop(key, None)
        if parts is None:
            return None
        grad = parts[1] if len(parts) == 2 else self.engine.total(parts[1:])
        self.found[key] = parts[0], grad
        return grad


def _leading(roots: Sequence[Any], towards: set[Any]) -> set[Node]:
    """The ancestors of `roots` that depend on one of the versions."""
    nodes: dict[Node, list[tuple[Any, Place]]] = {}
    pending = [var._place for var in roots]
    while pending:
        place = resolved(pending.pop())
        if place is not None and place[0] not in nodes:
            nodes[place[0]] = [(var, resolved(parent)) for var, parent in place[0].edges()]
            pending += [parent for _, parent in nodes[place[0]]]
    leading: set[Node] = set()
    for node in sorted(nodes, key=lambda n: n.order):
        if any(key_of(var, p) in towards or (p is not None and p[0] in leading) for var, p in nodes[node]):
            leading.add(node)
    return leading


_FREED = explain(
    "backward: an op of this graph was used by an earlier backward pass, which freed it",
    "a graph that no backward pass has run over, or one that was retained",
    "a graph whose inputs and outputs of grad ops do not exist any more",
    "call the earlier backward with retain_graph=True, or compute the values again",
)
