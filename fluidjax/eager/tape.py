"""The tape: which op made a variable of which, and the backward pass over it.

The gradient of an op is what its grad maker writes, the one that ``append_backward`` uses, compiled once for each
kernel and choice of inputs that want a gradient. The tape holds variables, not values: a value set between forward and
backward pass is the one that counts.
"""

from __future__ import annotations

import heapq
import itertools
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, NamedTuple

import lowering
from fluidjax.base.errors import EnforceNotMet, explain
from fluidjax.eager.kernels import Kernel, flatten, kernel_of
from fluidjax.eager.values import Value, zeros
from lowering import EMPTY, GRAD, OpSpec, OpView

_counter = itertools.count()


class Step(NamedTuple):
    """One op of a gradient: its kernel, where its inputs come from, and where its outputs go.

    A source is ("i", k) for input k of the forward op, ("o", k) for an output, ("g", k) for an output's gradient,
    ("f", k) for input k of the op that the forward op is the gradient of, ("t", name) for an earlier step's result. A
    target is ("i", k), ("f", k) or ("t", name); None for an output nobody wants.
    """

    kernel: Kernel
    sources: tuple[tuple[str, Any], ...]
    targets: tuple[tuple[str, Any] | None, ...]


class Plan(NamedTuple):
    """The gradient of a kernel: its steps, and the indices of the outputs whose values they read."""

    steps: tuple[Step, ...]
    reads: frozenset[int]


def plan_of(kernel: Kernel, wanted: tuple[bool, ...], forward: Kernel | None) -> Plan:
    """The gradient of `kernel` by the inputs of which `wanted` is True.

    Args:
        forward: for the kernel of a gradient op, that of the op it is the gradient of.
    """
    known = kernel.plans.get((wanted, forward))
    if known is None:
        known = kernel.plans[wanted, forward] = _make_plan(kernel, wanted, forward)
    return known


def _make_plan(kernel: Kernel, wanted: tuple[bool, ...], forward: Kernel | None) -> Plan:
    unwanted = {f"i{k}{GRAD}" for k, w in enumerate(wanted) if not w}
    origin = None if forward is None else _renamed(forward.view)
    view = _distinct(kernel.view)
    specs, _ = lowering.grad_ops(view, unwanted, forward=origin)
    steps = [_step(spec) for spec in specs if any(n != EMPTY for names in spec.outputs.values() for n in names)]
    reads = frozenset(k for step in steps for kind, k in step.sources if kind == "o")
    return Plan(tuple(steps), reads)


def _distinct(view: OpView) -> OpView:
    """The op with names of their own for outputs that are inputs' variables: the tape tells versions apart itself."""
    count = itertools.count()
    outputs = {
        s: [EMPTY if n == EMPTY else f"o{i}" for n, i in zip(ns, count, strict=False)] for s, ns in view.outputs.items()
    }
    return OpView(view.type, view.inputs, outputs, view.attrs)


def _renamed(view: OpView) -> OpView:
    return OpView(
        view.type,
        {slot: ["f" + n for n in names] for slot, names in view.inputs.items()},
        {slot: ["f" + n for n in names] for slot, names in view.outputs.items()},
        view.attrs,
    )


def _source(name: str) -> tuple[str, Any]:
    if name.startswith("fi") and name[2:].isdigit():
        return "f", int(name[2:])
    base = name.removesuffix(GRAD)
    if base[:1] in ("i", "o") and base[1:].isdigit():
        if base == name:
            return base[0], int(base[1:])
        if base[0] == "o":
            return "g", int(base[1:])
    return "t", name


def _target(name: str) -> tuple[str, Any] | None:
    if name == EMPTY:
        return None
    base = name.removesuffix(GRAD)
    if base != name and base.startswith("fi") and base[2:].isdigit():
        return "f", int(base[2:])
    if base != name and base[:1] == "i" and base[1:].isdigit():
        return "i", int(base[1:])
    return "t", name


def _step(spec: OpSpec) -> Step:
    inputs = {slot: list(names) for slot, names in spec.inputs.items() if names and list(names) != [EMPTY]}
    outputs = {slot: list(names) for slot, names in spec.outputs.items() if names}
    sources, ins = flatten(inputs)
    targets, outs = flatten(outputs)
    definition = lowering.get_op(spec.type)
    inherits = definition.forward is not None  # other ops take those of the forward op that they know
    attrs = {k: v for k, v in spec.attrs.items() if not k.startswith("op_") and (inherits or k in definition.attrs)}
    kernel = kernel_of(spec.type, attrs, ins, outs, wanted=tuple(n != EMPTY for n in targets), backward=True)
    return Step(kernel, tuple(map(_source, sources)), tuple(map(_target, targets)))


class Node:
    """What the tape holds of one op that ran: variables, and how gradients pass it.

    Attributes:
        order: later ops have larger ones.
        inputs: the input variables; () once the backward pass has used them up.
        parents: the place on the tape that each input had then: a node and the number of its output; None for leaves.
            UNWANTED where no gradient is wanted.
        specs: what the outputs are, None for those nobody takes.
    """

    __slots__ = ("freed", "inputs", "order", "parents", "specs")

    def __init__(self, inputs: Sequence[Any], parents: Sequence[Any], specs: Sequence[Any]) -> None:
        self.order = next(_counter)
        self.inputs, self.parents, self.specs = inputs, parents, specs
        self.freed = False

    def free(self) -> None:
        """Let go of all variables."""
        self.freed = True
        self.inputs = self.parents = ()

    def edges(self) -> list[tuple[Any, Place]]:
        """(variable, its place) for all that gradients of this node may flow to."""
        return [(v, p) for v, p in zip(self.inputs, self.parents, strict=True) if p is not UNWANTED]

    def gradients(self, engine: Engine, grads: list[Any]) -> Iterable[tuple[Any, Place, Any]]:
        """(input variable, its place, a gradient of it) for gradients of the outputs, None where there is none."""
        raise NotImplementedError


class OpNode(Node):
    """A node of an op that has a gradient.

    Attributes:
        plan: its gradient.
        saved: outputs that the gradient reads, by number: a weak reference to the variable, and its value.
        forward: for a gradient op, the node of the op that it is the gradient of.
    """

    __slots__ = ("forward", "kernel", "plan", "saved")

    def __init__(
        self,
        kernel: Kernel,
        inputs: Sequence[Any],
        parents: Sequence[Any],
        outputs: Sequence[Any],
        results: Sequence[Any],
        forward: OpNode | None = None,
    ) -> None:
        self.order, self.freed = next(_counter), False
        self.inputs, self.parents = inputs, parents
        self.specs = [None if r is None else r.spec for r in results]
        self.kernel, self.forward = kernel, forward
        wanted = tuple([p is not UNWANTED for p in parents])
        try:
            plan = kernel.plans[wanted, None if forward is None else forward.kernel]
        except KeyError:
            plan = plan_of(kernel, wanted, None if forward is None else forward.kernel)
        self.plan, reads = plan, plan.reads
        self.saved = {k: (weakref.ref(outputs[k]), outputs[k]._value) for k in reads} if reads else None

    def free(self) -> None:
        """See Node."""
        super().free()
        self.saved = self.forward = None

    def edges(self) -> list[tuple[Any, Place]]:
        """See Node."""
        return super().edges() + ([] if self.forward is None else self.forward.edges())

    def gradients(self, engine: Engine, grads: list[Any]) -> Iterable[tuple[Any, Place, Any]]:
        """See Node."""
        found: list[tuple[Any, Place, Any]] = []
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
        """The value of a saved output: its variable's, while somebody has it."""
        reference, value = self.saved[k]  # type: ignore[index]
        var = reference()
        return value if var is None else var._value

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


class PythonNode(Node):
    """A node whose gradient is a Python function: of the gradients of the outputs, to those of the inputs.

    Args:
        inputs: variables.
        outputs: variables; they become results of this node.
        backward: takes a list of variables (None for an output without a gradient) and returns as many as there are
            inputs, None for those without one.
    """

    __slots__ = ("backward",)

    def __init__(
        self, inputs: Sequence[Any], outputs: Sequence[Any], backward: Callable[[list[Any]], Sequence[Any]]
    ) -> None:
        super().__init__(tuple(inputs), places(inputs), [v._spec for v in outputs])
        self.backward: Callable[[list[Any]], Sequence[Any]] | None = backward
        for k, var in enumerate(outputs):
            var._place = self, k
            if var._stop_gradient is None:
                var._stop_gradient = False

    def free(self) -> None:
        """See Node."""
        super().free()
        self.backward = None

    def gradients(self, engine: Engine, grads: list[Any]) -> Iterable[tuple[Any, Place, Any]]:
        """See Node."""
        assert self.backward is not None
        given = [None if g is None else engine.as_variable(g) for g in grads]
        with engine.python():
            results = self.backward(given)
        each = zip(self.inputs, self.parents, results, strict=True)
        return [(v, p, engine.as_given(g)) for v, p, g in each if p is not UNWANTED and g is not None]


class Engine:
    """How a backward pass runs ops: on values, leaving no trace."""

    def __init__(self, tracer: Any) -> None:
        self.tracer = tracer

    def run(self, kernel: Kernel, flat: list[Any], node: OpNode) -> Sequence[Any]:
        """The results of one gradient op for variables and values."""
        return self.tracer.run(kernel, [x if x.__class__ is Value else x._value for x in flat])

    def as_given(self, var: Any) -> Any:
        """What a backward pass holds of a variable that is a gradient."""
        return var._value

    def python(self) -> AbstractContextManager[None]:
        """Within, a gradient that is a Python function runs."""
        return self.tracer.no_grad()

    def as_variable(self, given: Any) -> Any:
        """The variable for what a backward pass holds."""
        return self.tracer.variable_of(given)

    def total(self, parts: list[Any]) -> Any:
        """The sum of gradients."""
        return self.tracer.run(_sum(len(parts)), parts)[0]


class RecordingEngine(Engine):
    """How a backward pass runs ops whose own gradients are wanted: on variables, onto the tape."""

    def run(self, kernel: Kernel, flat: list[Any], node: OpNode) -> Sequence[Any]:
        """See Engine."""
        return self.tracer.trace_kernel(kernel, list(map(self.as_variable, flat)), forward=node)

    def as_given(self, var: Any) -> Any:
        """See Engine."""
        return var

    def python(self) -> AbstractContextManager[None]:
        """See Engine."""
        return nullcontext()

    def as_variable(self, given: Any) -> Any:
        """See Engine."""
        return self.tracer.variable_of(given) if given.__class__ is Value else given

    def total(self, parts: list[Any]) -> Any:
        """See Engine."""
        return self.tracer.trace_kernel(_sum(len(parts)), list(map(self.as_variable, parts)))[0]


@cache
def _sum(count: int) -> Kernel:
    return kernel_of("sum", {}, (("X", count),), ("Out",), backward=True)


Place = tuple[Node, int] | None  # on the tape: a node and the number of its output; None for leaves
UNWANTED: Any = object()  # stands for the place of an input that wants no gradient


def places(inputs: Sequence[Any]) -> tuple[Any, ...]:
    """The place of each variable, UNWANTED where no gradient flows to it."""
    return tuple([v._place if v._stop_gradient is False else UNWANTED for v in inputs])


def key_of(var: Any, place: Place) -> Any:
    """What names one version of a variable in a backward pass."""
    return id(var) if place is None else (id(place[0]), place[1])


class Pass:
    """One backward pass.

    Args:
        engine: how ops run.
        roots: the variables it starts from, each with its gradient (what the engine takes).
        retain: whether the tape is kept for another pass.
        towards: versions of variables; where given, only what leads to these is run.
        constants: versions of variables that no gradient passes.

    Attributes:
        found: version -> (variable, gradient).
        used: the nodes that were passed, the last ones first.
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
        """Run the ops of all gradients that the roots depend on; returns ``found``."""
        queue, used = self.queue, self.used
        while queue:
            node = heapq.heappop(queue)[1]
            used.append(node)
            mark = id(node)
            grads = [self._settle((mark, k)) for k in range(len(node.specs))]
            for var, place, grad in node.gradients(self.engine, grads):
                if var._stop_gradient is False:
                    self._add(var, place, grad)
        for key in list(self.parts):
            self._settle(key)
        return self.found

    def end(self) -> None:
        """Let go of the tape, unless it is retained."""
        if not self.retain:
            for node in self.used:
                node.free()

    def _add(self, var: Any, place: Place, grad: Any) -> None:
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

    def _settle(self, key: Any) -> Any:
        parts = self.parts.pop(key, None)
        if parts is None:
            return None
        grad = parts[1] if len(parts) == 2 else self.engine.total(parts[1:])
        self.found[key] = parts[0], grad
        return grad


def _leading(roots: Sequence[Any], towards: set[Any]) -> set[Node]:
    """The ancestors of `roots` from which one of the versions is reached."""
    nodes: dict[Node, list[tuple[Any, Place]]] = {}
    pending = [var._place for var in roots]
    while pending:
        place = pending.pop()
        if place is not None and place[0] not in nodes:
            nodes[place[0]] = place[0].edges()
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
