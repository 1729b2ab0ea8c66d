"""Training steps that are known as a whole: nothing of them is recorded until somebody looks.

A batch often is one call of a layer, a few ops such as those of the loss, the backward pass and an update of all
parameters. If it recurs, each of these is compared with what came last time, and no more is done: the batch is
*promised*. Once all of it has come, the block runs on the variables' arrays as the last run left them. If anybody looks
before, or does anything else, what has come is recorded as ever (see ``resumed``).
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from operator import attrgetter, is_
from types import MappingProxyType
from typing import Any

import numpy as np

from fluidjax.eager.kernels import Kernel
from fluidjax.eager.recorded.demands import is_below
from fluidjax.eager.recorded.pending import Recorder, recorder
from fluidjax.eager.repeated.replay import Replay
from fluidjax.eager.values import Spec, Value
from fluidjax.eager.variables.sharing import Shared
from fluidjax.eager.variables.varbase import VarBase
from fluidjax.eager.whole.ahead import Ahead, missed, run_ahead
from fluidjax.eager.whole.resumed import CALL, PASS, UPDATE, record
from fluidjax.eager.whole.running import Running
from fluidjax.eager.whole.stand_ins import Held, PromisedNode
from fluidjax.eager.whole.steps import HELD, Step
from fluidjax.eager.whole.together import Together
from fluidjax.framework.guards import default_main_program
from lowering.engine.interrupts import uninterrupted

_GRADIENT, _TRAINABLE = attrgetter("_grad"), attrgetter("trainable")


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


class Promise(Running):
    """A step of which nothing is recorded yet.

    Attributes:
        together: the variables that it replaces.
        taken: what each op read besides these: variables and their values.
        draws: the keys of ops, by their numbers.
    """

    draws: Mapping[int, Value] = MappingProxyType({})

    def __init__(
        self,
        step: Step,
        tracer: Any,
        together: Together,
        variables: list[Any],
        values: list[Value],
        bases: tuple[int, int],
    ) -> None:
        self.step, self.together, self.tracer = step, together, tracer
        self.variables, self.values, self.bases = variables, values, bases
        self.leaves = [*map([*values, None].__getitem__, step.pulled)]
        for n in step.drawn:
            self.leaves[n] = recorder.key(step.body.seed)
        self.outputs, self.found = [], []

    # What comes.

    def begin(self) -> list[VarBase]:
        """The outputs of the call."""
        outputs: list[VarBase] = []
        node = self.node = PromisedNode(self, self.step.zeros)
        for n, (code, spec, placed, stop_gradient, (base, sign, offset)) in enumerate(self.step.fresh):
            held: Any = Held(self, code, spec)
            var = VarBase._of(sign * self.bases[base] + offset, held, stop_gradient)
            if placed:
                var._place = node, n
            self.outputs.append((weakref.ref(var), code))
            outputs.append(var)
        recorder.promised = self
        recorder.__class__ = _Promising
        return outputs

    @property
    def kernel(self) -> Kernel | None:
        """That of the op which comes next; None if none does."""
        ops, n = self.step.ops, len(self.taken)
        return ops[n].kernel if n < len(ops) and self.came == CALL else None

    def follow(
        self, tracer: Any, kernel: Kernel, ins: Sequence[Any], outs: list[VarBase] | None, ids: dict[str, int]
    ) -> list[VarBase] | None:
        """See ``Tracer.follow``: the outputs of an op which has come with this; None, without effect, for another."""
        if kernel is not self.kernel or tracer is not self.tracer or not tracer._train_mode:
            return None
        op = self.step.ops[len(self.taken)]
        taken = self._read(op, ins)
        if taken is None or (outs and any(var._held is not None or var._place is not None for var in outs)):
            return None
        for k, high in op.limits:
            array = ins[k]._value.array
            if array.__class__ is not np.ndarray or not is_below(array, high):
                return None
        if outs is None:
            outs = [VarBase._temporary(ids) for _ in op.outs]
        made: list[tuple[weakref.ref[Any], int]] = []
        for var, (code, spec) in zip(outs, op.outs, strict=True):
            var._held = Held(self, code, spec)  # type: ignore[assignment]
            if op.stop_gradient is False and var._stop_gradient is None:
                var._stop_gradient = False
            if op.graded:
                var._place = self.node, len(self.outputs) + len(made)
            made.append((weakref.ref(var), code))
        leaves = [value for _, value in taken if value not in self.leaves]
        if kernel.takes_key:
            key = recorder.key(default_main_program().random_seed)
            self.draws = {**self.draws, len(self.taken): key}
            leaves.append(key)
        # An interrupt, which arrives at calls, comes before all of this or after it.
        self.leaves += leaves
        self.outputs += made
        self.taken = (*self.taken, taken)
        return outs

    def _read(self, op: Any, ins: Sequence[Any]) -> list[tuple[Any, Value]] | None:
        """What an op reads besides what the step computes; None if it does not read what it read before."""
        if len(ins) != len(op.refs):
            return None
        taken: list[tuple[Any, Value]] = []
        for var, ref, flows in zip(ins, op.refs, op.flows, strict=True):
            held = getattr(var, "_held", None)
            if ref.__class__ is int and ref >= 0:
                if held.__class__ is not Held or held.promise is not self or held.code != ref:
                    return None
            else:
                value = held if held.__class__ is Value else held.now() if held.__class__ is Shared else None
                if value is None or not self._fits(value, ref, taken):
                    return None
                taken.append((var, value))
            if (var._stop_gradient is False) is not flows:
                return None
        return taken

    def _fits(self, value: Value, ref: Any, taken: list[tuple[Any, Value]]) -> bool:
        """Whether a value is the leaf, or the new leaf of the kind, that an op reads."""
        if ref.__class__ is int:
            return value is self.leaves[~ref]
        if value.spec is not ref or value.array is None or value in self.leaves:
            return False
        return value not in [each for _, each in taken]

    def is_unread(self, code: int) -> bool:
        """Whether nothing has read an output, the call included, and no pass has begun."""
        read = code in self.step.body.codes_consumed or any(code in op.refs for op in self.step.ops[: len(self.taken)])
        return self.came == CALL and not read

    def backward(self, root: Any, retain: bool) -> bool:
        """Whether a backward pass is the known one, which has come with this."""
        step, held = self.step, root._held
        if self.came != CALL or retain or len(self.taken) < len(step.ops) or root._stop_gradient is not False:
            return False
        if held.__class__ is not Held or held.promise is not self or held.code != step.root:
            return False
        between = [(self.outputs[n][0](), code, spec) for n, code, spec in step.between] if step.between else ()
        for var, _, _ in between:
            if var is not None and var._grad is not None:
                return False
        if not self._are_current():
            return False
        self.node.freed = self.node.passed = True
        self.came, root._place = PASS, None
        root._set_gradient(step.ones)
        for var, code, spec in between:
            if var is not None:
                given: Any = Held(self, code, spec)
                var._grad = VarBase._of(var._grad_name(), given, False)
                self.outputs.append((weakref.ref(var._grad), code))
        return True

    def _are_current(self) -> bool:
        """Whether what the pass reads of the variables is still what the call read: they may share an array."""
        step = self.step
        if step.fixed and not all(map(is_, map(HELD, step.fixed), step.held)):
            return False
        variables, values = self.variables, self.values
        for n in step.read:
            held, value = variables[n]._held, values[n]
            if held is not value and (held is None or held.__class__ is Value or held.now() is not value):
                return False
        for each in self.taken:
            for var, value in each:
                if var._value is not value:
                    return False
        return True

    def gradients(self, parameters: Sequence[Any]) -> list[tuple[Any, Any]] | None:
        """(parameter, the variable of its gradient) for an update of all of them; None if it is not the known one."""
        if self.came != PASS:
            return None
        known = self.step.gradients
        if parameters.__class__ is list and len(parameters) == len(known):
            if all(map(is_, map(_GRADIENT, parameters), known)) and all(map(_TRAINABLE, parameters)):
                return [*zip(parameters, known, strict=True)]
        pairs = [(p, g) for p in parameters if p.trainable and (g := p._grad) is not None]
        same = len(pairs) == len(known) and all([g is each for (_, g), each in zip(pairs, known, strict=True)])
        return pairs if same else None

    def update(self, replay: Replay, given: Sequence[Any]) -> bool:
        """Whether an update is the known one, which has come with this."""
        step = self.step
        if self.came != PASS or replay is not step.replay():
            return False
        if len(given) < len(step.gradients) or not all(map(is_, given, step.gradients)):
            return False
        leaves = [*step.leaves]
        for at, k, spec in step.given:
            value = given[k]._value
            if value.__class__ is not Value or value.array is None or value.spec is not spec:
                return False
            if value in leaves or value in self.leaves:
                return False
            leaves[at] = value
        if self.ahead is not None and not self.ahead.took(leaves):  # the rate is another one
            missed(step)
            self.ahead = None
        self.leaves += leaves
        self.replay, self.given, self.came = replay, given, UPDATE
        recorder.limit = 0  # what follows is another batch
        return True

    def clear(self, parameters: list[Any]) -> bool:
        """Whether all gradients, which are those of the trained ones of these, can be zeroed; it has come with this."""
        if self.came != UPDATE:
            return False
        last, trained = self.step.cleared_last
        if len(parameters) != len(last) or not all(map(is_, map(_GRADIENT, parameters), last)):
            return self._clear_other(parameters)
        if [*map(_TRAINABLE, parameters)] != trained:
            return self._clear_other(parameters)
        self.cleared = True
        return True

    def _clear_other(self, parameters: list[Any]) -> bool:
        """The same where these are not what it was given last."""
        gradients = [grad for p in parameters if p.trainable and (grad := p._grad) is not None]
        if {*map(id, gradients)} == {*map(id, self.step.gradients)} and len(gradients) == len(self.step.gradients):
            self.step.cleared_last = [p._grad for p in parameters], [p.trainable for p in parameters]
            self.cleared = True
        return self.cleared

    # Looking.

    def value(self, code: int, spec: Spec) -> Value | None:
        """The value of an output."""
        step, ahead = self.step, None
        if not self.over and (self.came != UPDATE or self.cleared < step.cleared):
            ahead = self._shown(step, code)
        if ahead is not None:
            return ahead.value(code, spec)
        self.settle()
        for reference, each in self.outputs:
            if each == code and (var := reference()) is not None:
                return var._held
        return None

    def _shown(self, step: Step, code: int) -> Ahead | None:
        """What an output is among, because the block has been run ahead, which is done if it can be; None if not."""
        frame = step.ahead
        if self.ahead is None and frame is not None and code in frame.places:
            forward = self.came != UPDATE and len(self.taken) == len(step.ops)
            if forward:  # the call and all ops have come, and perhaps the pass
                uninterrupted(self._run_ahead)
        ahead = self.ahead
        return ahead if ahead is not None and code in ahead.frame.places else None

    def _run_ahead(self) -> None:
        if not self.over and self.together.intact:
            self.ahead = run_ahead(self.step, self.together.state, self.leaves)

    def _record(self) -> None:
        """Record what has come."""
        if self.over:
            return
        if self.ahead is not None:
            missed(self.step)
        self.leave()
        record(self)
        self.forget()
