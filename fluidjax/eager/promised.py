"""Training steps that are known as a whole: nothing of them is recorded until somebody looks.

A batch often is one call of a layer, the backward pass from its result and an update of all parameters. If it recurs,
each of these is compared with what came last time, and no more is done: the batch is *promised*. Once all of it has
come, the block runs on the variables' arrays as the last run left them. If anybody looks before, or does anything else,
what has come is recorded as ever.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fluidjax.base.flags import FLAGS
from fluidjax.eager.alive import array_of
from fluidjax.eager.bodies import Body, CallNode
from fluidjax.eager.packs import Piece, taken
from fluidjax.eager.pending import LIMIT, Recorder, recorder
from fluidjax.eager.replay import Replay
from fluidjax.eager.together import Together
from fluidjax.eager.values import Spec, Value, zeros
from fluidjax.eager.varbase import VarBase
from lowering.engine.interrupts import uninterrupted
from lowering.engine.x64 import with_x64

if TYPE_CHECKING:
    from fluidjax.eager.steps import Step


class _Promising(Recorder):
    """The recorder while a step is promised: whoever asks for the batch gets it recorded, or run."""

    @property
    def point(self) -> Any:  # type: ignore[override]
        """See Recorder."""
        return self._settled().point

    @property
    def serial(self) -> int:  # type: ignore[override]
        """See Recorder."""
        return self._settled().serial

    def _settled(self) -> Recorder:
        self.promised.settle()
        return recorder


class Held:
    """What an output of the call holds while the step is promised."""

    __slots__ = ("_number", "_promise", "spec")

    def __init__(self, promise: Promise, number: int, spec: Spec) -> None:
        self._promise, self._number, self.spec = promise, number, spec

    def now(self) -> Value:
        """The value."""
        return self._promise.value(self._number)

    def becomes(self, value: Value | None) -> Value | None:
        """What the variable holds once a value is assigned to it."""
        self.now()
        return value


class PromisedNode(CallNode):
    """The place of the call on the tape.

    Attributes:
        promise: the step.
        real: the call's node, once it has been recorded.
    """

    __slots__ = ("promise", "real")

    def __init__(self, promise: Promise, body: Body) -> None:
        self.order, self.inputs, self.parents, self.specs = -1, (), (), body.specs
        self.freed = self.passed = False
        self.plan, self.promise = body, promise
        self.real: Any = None

    def at(self, k: int) -> Any:
        """See Node."""
        if self.real is None:
            self.promise.settle()
        return (self, k) if self.real is None else self.real.at(k)


_CALL, _PASS, _UPDATE = range(3)


class Promise:
    """A step of which nothing is recorded yet.

    Attributes:
        together: the variables that it replaces.
    """

    def __init__(
        self,
        step: Step,
        tracer: Any,
        together: Together,
        variables: list[Any],
        values: list[Value],
        bases: tuple[int, int],
    ) -> None:
        self.together = together
        self._step, self._tracer = step, tracer
        self._variables, self._values, self._bases = variables, values, bases
        body = step.body
        self._leaves = [
            None if at is None and k is not None else recorder.key(body.seed) if at is None else values[at]
            for at, k in zip(step.pulled, body.leaves, strict=True)
        ]
        self._came, self._cleared, self._over = _CALL, False, False
        self._node: Any = None
        self._root: Any = None
        self._replay: Any = None
        self._given: Sequence[Any] = ()

    # What comes.

    def begin(self) -> list[VarBase]:
        """The outputs of the call."""
        body, outputs = self._step.body, []
        self._node = PromisedNode(self, body)
        for n, k in enumerate(body.fresh):
            result = body.results[k]
            var = VarBase._of(result.name(self._bases), Held(self, n, result.spec), result.stop_gradient)  # type: ignore[arg-type]
            if body.outputs[n][1] is not None:
                var._place = self._node, n
            outputs.append(var)
        self._outputs = [weakref.ref(var) for var in outputs]
        recorder.promised = self
        recorder.__class__ = _Promising
        return outputs

    def backward(self, root: Any, retain: bool) -> bool:
        """Whether a backward pass is the known one, which has come with this."""
        step, node = self._step, self._node
        if self._came != _CALL or retain or root._place != (node, step.root) or root._stop_gradient is not False:
            return False
        if not self._are_current():
            return False
        node.freed, node.passed = True, step.visit.inner
        self._root, self._came, root._place = root, _PASS, None
        root._set_gradient(step.ones)
        return True

    def _are_current(self) -> bool:
        """Whether what the pass reads of the variables is still what the call read: they may share an array."""
        step = self._step
        if [var._held for var in step.fixed] != step.held:
            return False
        return all([self._variables[n]._value is self._values[n] for n in step.read])

    def gradients(self, parameters: Sequence[Any]) -> list[tuple[Any, Any]] | None:
        """(parameter, the variable of its gradient) for an update of all of them; None if it is not the known one."""
        if self._came != _PASS:
            return None
        pairs = [(p, g) for p in parameters if p.trainable and (g := p._grad) is not None]
        return pairs if [id(g) for _, g in pairs] == self._step.ids else None

    def update(self, replay: Replay, given: Sequence[Any]) -> bool:
        """Whether an update is the known one, which has come with this."""
        step = self._step
        if self._came != _PASS or replay is not step.replay():
            return False
        if [*map(id, given[: len(step.ids)])] != step.ids:
            return False
        leaves = [*step.leaves]
        for at, k, spec in step.given:
            value = given[k]._value
            if value.__class__ is not Value or value.array is None or value.spec is not spec:
                return False
            if value in leaves or value in self._leaves:
                return False
            leaves[at] = value
        self._leaves += leaves
        self._replay, self._given, self._came = replay, given, _UPDATE
        return True

    def clear(self, gradients: Sequence[Any]) -> bool:
        """Whether all gradients, which must be these, can be zeroed, which has come with this."""
        if self._came != _UPDATE or {*map(id, gradients)} != {*self._step.ids}:
            return False
        self._cleared = True
        return True

    # Looking.

    def value(self, number: int) -> Value:
        """The value of an output of the call."""
        self.settle()
        return self._outputs[number]()._held  # type: ignore[union-attr]

    def settle(self) -> None:
        """Run what has come, if it is all; record it otherwise. An interrupt waits."""
        if not self._over:
            uninterrupted(self._settle)

    def _settle(self) -> None:
        self._over = True
        recorder.__class__ = Recorder
        recorder.promised = None
        if self._came == _UPDATE and self._cleared >= self._step.cleared and self._can_give():
            self._run()
        else:
            self._record()
        self._variables, self._values, self._leaves, self._given = [], [], [], ()
        self._root = self._replay = self._node = None  # the node refers to this

    def _can_give(self) -> bool:
        """Whether the block returns all outputs of the call that are still wanted."""
        return all(
            [k >= 0 or reference() is None for k, reference in zip(self._step.shown, self._outputs, strict=True)]
        )

    def _run(self) -> None:
        step, together, frame = self._step, self.together, self._step.frame
        leaves: list[Any] = self._leaves
        outer = [*map(array_of, map(leaves.__getitem__, frame.outer))]
        if Piece in {*map(type, outer)}:
            outer = [*map(taken, outer)]
        arguments = frame.arguments(outer, together.state)
        together.state = []
        recorder.clear()
        try:
            found = with_x64(frame.block.call, arguments)
        except BaseException:
            together.lose()
            self._give([None] * len(frame.places))
            raise
        together.state = frame.state(found)
        together.gradients = None if self._cleared else [found[k] for k in step.found]
        self._give(found)
        self._replay.promises += 1

    def _give(self, results: Sequence[Any]) -> None:
        """Give the call's outputs their values; None where the block failed."""
        for reference, k, spec in zip(self._outputs, self._step.shown, self._step.body.specs, strict=True):
            var = reference()
            if var is not None:
                value = var._held = Value.pending(spec, -1, 0)
                value.array = results[k]

    def _record(self) -> None:
        """Record what has come."""
        step, together = self._step, self.together
        limit, recorder.limit = recorder.limit, LIMIT
        blocks, FLAGS["FLAGS_eager_blocks"] = FLAGS["FLAGS_eager_blocks"], True
        try:
            together.part()
            self._record_call()
            if self._came >= _PASS:
                self._tracer.backward(self._root)
            if self._came == _UPDATE:
                self._replay.run(self._tracer, self._given)
        finally:
            recorder.limit, FLAGS["FLAGS_eager_blocks"] = limit, blocks
        if self._cleared:
            for var in step.gradients:
                var._value = zeros(var._spec)
        together.values = [var._value for var in [*step.updated, *step.gradients]]

    def _record_call(self) -> None:
        step, body = self._step, self._step.body
        outer = {k: n for n, (k, _, _) in enumerate(step.outer)}
        variables, values = [], []
        for k, number in enumerate(step.numbers):
            if number is not None:
                variables.append(step.updated[number])
                values.append(self.together.values[number])
                continue
            var, value = self._variables[outer[k]], self._values[outer[k]]
            if self._came >= _PASS:  # its array may have changed since
                var = VarBase._of(None, value, var._stop_gradient)
            variables.append(var)
            values.append(value)
        drawn = [values[k] if value is None else value for k, value in zip(body.leaves, self._leaves, strict=False)]
        outputs = body.record(recorder, variables, drawn, self._bases, [reference() for reference in self._outputs])
        places = [var._place for var in outputs if var._place is not None]
        self._node.real = places[0][0] if places else None
