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
from typing import Any, NamedTuple

import lowering
from fluidjax.base.errors import EnforceNotMet, explain
from fluidjax.eager.kernels import Kernel, flatten, kernel_of
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
    attrs = {k: v for k, v in spec.attrs.items() if not k.startswith("op_")}
    kernel = kernel_of(spec.type, attrs, ins, outs, wanted=tuple(n != EMPTY for n in targets), backward=True)
    return Step(kernel, tuple(map(_source, sources)), tuple(map(_target, targets)))


class Node:
    """What the tape holds of one op that ran: variables, and how gradients pass it.

    Attributes:
        order: later ops have larger ones.
        inputs: the input variables; () once the backward pass has used them up.
        wanted: which of them want a gradient.
        parents: the node that had made each input then, None for leaves.
        outputs: weak references to the output variables.
        saved: values of outputs that the gradient reads, by index.
    """

    __slots__ = (
        "__weakref__",
        "forward",
        "freed",
        "inputs",
        "kernel",
        "order",
        "outputs",
        "parents",
        "plan",
        "saved",
        "wanted",
    )

    def __init__(self, inputs: Sequence[Any], wanted: tuple[bool, ...], outputs: Sequence[Any]) -> None:
        self.order = next(_counter)
        self.inputs = tuple(inputs)
        self.wanted = wanted
        self.parents = tuple(v._node if w else None for v, w in zip(inputs, wanted, strict=True))
        self.outputs = [weakref.ref(v) for v in outputs]
        self.freed = False
        self.forward: Node | None = None
        self.saved: dict[int, Any] = {}

    def free(self) -> None:
        """Let go of all variables."""
        self.freed = True
        self.inputs, self.parents, self.saved, self.forward = (), (), {}, None

    def edges(self) -> list[tuple[Any, Node | None]]:
        """(variable, the node that made it) for all that gradients of this node may flow to."""
        own = [(v, p) for v, p, w in zip(self.inputs, self.parents, self.wanted, strict=False) if w]
        return own if self.forward is None else own + self.forward.edges()

    def gradients(self, engine: Engine, grads: list[Any]) -> Iterable[tuple[Any, Node | None, Any]]:
        """(input variable, the node that made it, a gradient of it) for gradients of the outputs, None where zero."""
        raise NotImplementedError


class OpNode(Node):
    """A node of an op that has a gradient."""

    __slots__ = ()

    def __init__(
        self, kernel: Kernel, inputs: Sequence[Any], wanted: tuple[bool, ...], outputs: Sequence[Any], forward: Any
    ) -> None:
        super().__init__(inputs, wanted, outputs)
        self.kernel = kernel
        self.forward = forward
        self.plan = plan_of(kernel, wanted, None if forward is None else forward.kernel)
        self.saved = {k: outputs[k]._value for k in self.plan.reads}

    def gradients(self, engine: Engine, grads: list[Any]) -> Iterable[tuple[Any, Node | None, Any]]:
        """See Node."""
        found: list[tuple[Any, Node | None, Any]] = []
        temporary: dict[str, Any] = {}
        for step in self.plan.steps:
            flat = [self._read(engine, kind, k, grads, temporary) for kind, k in step.sources]
            results = engine.run(step, flat, self)
            for target, result in zip(step.targets, results, strict=False):
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

    def _read(self, engine: Engine, kind: str, k: Any, grads: list[Any], temporary: dict[str, Any]) -> Any:
        if kind == "i":
            return engine.of_variable(self.inputs[k])
        if kind == "g":
            return grads[k] if grads[k] is not None else engine.zeros_like(self._output(engine, k))
        if kind == "o":
            return self._output(engine, k)
        if kind == "f":
            assert self.forward is not None
            return engine.of_variable(self.forward.inputs[k])
        return temporary[k]

    def _output(self, engine: Engine, k: int) -> Any:
        var = self.outputs[k]()
        return engine.of_variable(var) if var is not None else engine.of_value(self.saved[k])


class PythonNode(Node):
    """A node whose gradient is a Python function: of the gradients of the outputs, to those of the inputs.

    Args:
        backward: takes a list of variables (None for an output without a gradient) and returns as many as there are
            inputs, None for those without one.
    """

    __slots__ = ("backward",)

    def __init__(
        self,
        inputs: Sequence[Any],
        wanted: tuple[bool, ...],
        outputs: Sequence[Any],
        backward: Callable[[list[Any]], Sequence[Any]],
    ) -> None:
        super().__init__(inputs, wanted, outputs)
        self.backward = backward

    def gradients(self, engine: Engine, grads: list[Any]) -> Iterable[tuple[Any, Node | None, Any]]:
        """See Node."""
        given = [None if g is None else engine.as_variable(g) for g in grads]
        results = self.backward(given)
        each = zip(self.inputs, self.parents, self.wanted, results, strict=True)
        return [(v, p, engine.of_variable(g)) for v, p, w, g in each if w and g is not None]


class Engine:
    """How a backward pass runs ops: on values, leaving no trace."""

    def __init__(self, tracer: Any) -> None:
        self.tracer = tracer

    def run(self, step: Step, flat: list[Any], node: OpNode) -> Sequence[Any]:
        """The results of one gradient op."""
        return self.tracer.run(step.kernel, flat)

    def of_variable(self, var: Any) -> Any:
        """What `run` takes for a variable."""
        return var._value

    def of_value(self, value: Any) -> Any:
        """What `run` takes for a value."""
        return value

    def as_variable(self, given: Any) -> Any:
        """The variable for what `run` takes."""
        return self.tracer.variable_of(given)

    def zeros_like(self, given: Any) -> Any:
        """Zeros of the shape of what is given."""
        return self.tracer.run(_zeros, [given])[0]

    def total(self, parts: list[Any]) -> Any:
        """The sum of gradients."""
        return self.tracer.run(_sum(len(parts)), parts)[0]


class RecordingEngine(Engine):
    """How a backward pass runs ops whose own gradients are wanted: on variables, onto the tape."""

    def run(self, step: Step, flat: list[Any], node: OpNode) -> Sequence[Any]:
        """See Engine."""
        return self.tracer.trace_kernel(step.kernel, flat, forward=node)

    def of_variable(self, var: Any) -> Any:
        """See Engine."""
        return var

    def of_value(self, value: Any) -> Any:
        """See Engine."""
        return self.tracer.variable_of(value)

    def as_variable(self, given: Any) -> Any:
        """See Engine."""
        return given

    def zeros_like(self, given: Any) -> Any:
        """See Engine."""
        return self.tracer.trace_kernel(_zeros, [given])[0]

    def total(self, parts: list[Any]) -> Any:
        """See Engine."""
        return self.tracer.trace_kernel(_sum(len(parts)), parts)[0]


_zeros = kernel_of("fill_zeros_like", {}, ("X",), ("Out",), backward=True)


def _sum(count: int) -> Kernel:
    return kernel_of("sum", {}, (("X", count),), ("Out",), backward=True)


Key = tuple[int, int]


def key_of(var: Any, node: Node | None) -> Key:
    """What names one version of a variable in a backward pass."""
    return id(var), id(node)


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
    """

    def __init__(
        self,
        engine: Engine,
        roots: Sequence[tuple[Any, Any]],
        *,
        retain: bool = False,
        towards: Iterable[Key] | None = None,
        constants: Iterable[Key] = (),
    ) -> None:
        self.engine, self.retain = engine, retain
        self.constants = set(constants)
        self.leading = None if towards is None else _leading([var for var, _ in roots], set(towards))
        self.parts: dict[Key, list[Any]] = {}
        self.found: dict[Key, tuple[Any, Any]] = {}
        self.variables: dict[Key, Any] = {}
        self.queue: list[tuple[int, Node]] = []
        self.queued: set[int] = set()
        self.used: list[Node] = []
        for var, grad in roots:
            self._add(var, var._node, grad)

    def run(self) -> dict[Key, tuple[Any, Any]]:
        """Run the ops of all gradients that the roots depend on; returns ``found``."""
        while self.queue:
            _, node = heapq.heappop(self.queue)
            self._pass(node)
        for key in list(self.parts):
            self._settle(key)
        if not self.retain:
            for node in self.used:
                node.free()
        return self.found

    def _add(self, var: Any, node: Node | None, grad: Any) -> None:
        key = key_of(var, node)
        if key in self.constants:
            return
        self.parts.setdefault(key, []).append(grad)
        self.variables[key] = var
        if node is not None and id(node) not in self.queued and (self.leading is None or node in self.leading):
            if node.freed:
                raise EnforceNotMet(_FREED)
            self.queued.add(id(node))
            heapq.heappush(self.queue, (-node.order, node))

    def _settle(self, key: Key) -> Any:
        parts = self.parts.pop(key, None)
        if parts is None:
            return None
        grad = parts[0] if len(parts) == 1 else self.engine.total(parts)
        self.found[key] = self.variables[key], grad
        return grad

    def _pass(self, node: Node) -> None:
        grads = []
        for reference in node.outputs:
            var = reference()
            grads.append(None if var is None else self._settle(key_of(var, node)))
        self.used.append(node)
        for var, parent, grad in node.gradients(self.engine, grads):
            if not var.stop_gradient:
                self._add(var, parent, grad)


def _leading(roots: Sequence[Any], towards: set[Key]) -> set[Node]:
    """The nodes behind `roots` from which one of the versions is reached."""
    nodes: dict[Node, list[tuple[Any, Node | None]]] = {}
    pending = [var._node for var in roots]
    while pending:
        node = pending.pop()
        if node is not None and node not in nodes:
            nodes[node] = node.edges()
            pending += [parent for _, parent in nodes[node]]
    leading: set[Node] = set()
    for node in sorted(nodes, key=lambda n: n.order):
        if any(key_of(var, parent) in towards or parent in leading for var, parent in nodes[node]):
            leading.add(node)
    return leading


_FREED = explain(
    "backward: an op of this graph was used by an earlier backward pass, which freed it",
    "a graph that no backward pass has run over, or one that was retained",
    "a graph whose inputs and outputs of grad ops do not exist any more",
    "call the earlier backward with retain_graph=True, or compute the values again",
)
