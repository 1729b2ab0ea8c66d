"""A static program as a single op of an eager network.

The forward ops and, in the same program after them, their gradient ops run as two segments; intermediate values are
passed from the first to the second as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fluidjax.backward.gradients import calc_gradient
from fluidjax.base.enums import VarType, is_floating, to_numpy_dtype
from fluidjax.base.flags import flag
from fluidjax.base.mode import current_tracer, tracer_guard
from fluidjax.eager.ambient import eager
from fluidjax.eager.functions.python_ops import record
from fluidjax.eager.functions.segments import RecordedStretch
from fluidjax.eager.recorded.pending import recorder
from fluidjax.eager.values import Value
from fluidjax.eager.variables.varbase import VarBase
from fluidjax.execution.executables.executable import default_device
from fluidjax.execution.steps.seeds import next_seed
from fluidjax.framework import Program, Variable, program_guard, program_view
from fluidjax.layers.nn import elementwise_mul, reduce_sum
from fluidjax.layers.tensor import assign
from fluidjax.to_static.checks import Broken
from lowering.engine.dataflow import flow
from lowering.engine.plan import make_plan, runnable
from lowering.errors import OpError

__all__ = ["PartialProgramLayer"]


class PartialProgramLayer:
    """Runs a program in eager mode; gradients flow to its inputs and to the state it reads.

    Args:
        main_program: the program, without gradients.
        inputs: the variables to feed, in order.
        outputs: the variables returned by a call.
        state: maps names in the program to the eager variables that it reads and may write.

    Attributes:
        program: the program with its gradient ops.
    """

    def __init__(
        self, main_program: Program, inputs: Sequence[Variable], outputs: Sequence[Variable], state: dict[str, Any]
    ) -> None:
        self.inputs, self.outputs, self.state = list(inputs), list(outputs), state
        self._forward_program = main_program
        self._capacities: dict[str, int] = {}
        plan = make_plan(program_view(main_program), [v.name for v in outputs])
        self._random = plan.random
        self._written = [name for name in plan.keeps if name in state]
        self._halves: dict[tuple[bool, ...], _Halves] = {}

    def fetch(self, arrays: Sequence[Any]) -> list[np.ndarray]:
        """The values of the outputs, without recording gradients."""
        with eager() as tracer, tracer.no_grad():
            return [np.asarray(v.numpy()) for v in self([VarBase(np.asarray(a)) for a in arrays])]

    def __call__(self, values: Sequence[VarBase], seed: Any = None) -> list[VarBase]:
        """Run the program: one eager variable for each output. `seed`: that of an earlier run whose draws to repeat."""
        tracer = current_tracer()
        held = list(self.state.values())
        variables = [*values, *held]
        wanted = tuple(not v.stop_gradient and is_floating(v.dtype) for v in variables)
        records = tracer is not None and tracer._train_mode and any(wanted)
        halves = self._halves_for(wanted if records else (False,) * len(wanted))
        names = [*(v.name for v in self.inputs), *self.state]
        given = {n: _computed(v) for n, v in zip(names, variables, strict=True)}
        if self._random and seed is None:
            seed = next_seed(self._forward_program)
        try:
            found = halves.forward.run(given, seed)
        except OpError as error:
            if isinstance(error.__cause__, Broken):  # of an assert, for one
                raise error.__cause__.error from None
            raise
        for name in self._written:
            self.state[name]._value = Value(found[name])
        results = [VarBase._of(v.name, Value(found[v.name])) for v in self.outputs]
        if records:
            kept = {n: found[n] for n in halves.saved if n in found}
            # What was there before the call is read again: as in eager mode, the value that it has then is the one.
            read = [(n, v) for n, v in zip(names, variables, strict=True) if n in halves.needed - halves.saved]
            ends = [(r.shape, to_numpy_dtype(r.dtype)) for r in results]

            def backward(grads: list[Any]) -> list[Any]:
                if tracer._train_mode:  # their own gradients are wanted
                    return halves.recorded(self, variables[: len(self.inputs)], _variables(grads, ends), seed)
                values = {**kept, **{n: _computed(v) for n, v in read}}
                return halves.gradients(values, _filled(grads, ends), seed)

            record(tracer, variables, results, backward)
        return results

    def _halves_for(self, wanted: tuple[bool, ...]) -> _Halves:
        found = self._halves.get(wanted)
        if found is None:
            names = [*(v.name for v in self.inputs), *self.state]
            targets = [n for n, w in zip(names, wanted, strict=True) if w]
            found = self._halves[wanted] = _Halves(self, names, targets)
        return found

    def differentiable(self) -> set[str]:
        """The names of inputs and state that gradients reach."""
        names = [*(v.name for v in self.inputs), *self.state]
        return set(_Halves(self, names, [n for n in names if is_floating(self._variable(n).dtype)]).targets)

    def _variable(self, name: str) -> Variable:
        return self._forward_program.global_block().var(name)

    @property
    def main_program(self) -> Program:
        """The program, without gradients."""
        return self._forward_program

    @property
    def compilations(self) -> int:
        """How often the program's ops, together, were compiled."""
        return sum(h.forward.traces + (h.backward.traces if h.backward else 0) for h in self._halves.values())


class _Halves:
    """The two segments, for a given set of gradients required."""

    def __init__(self, layer: PartialProgramLayer, names: Sequence[str], targets: Sequence[str]) -> None:
        source = layer._forward_program
        self._layer: PartialProgramLayer | None = None
        outputs = [v.name for v in layer.outputs]
        self._names = names
        self.backward: RecordedStretch | None = None
        self.needed: frozenset[str] = frozenset()
        program = source.clone() if targets else source
        count = len(program.global_block().ops)
        self._starts: list[tuple[int, str]] = []
        self._grads: dict[str, str] = {}
        if targets:
            self._append_gradients(program, outputs, targets)
        self._program = program
        view = program_view(program)
        settings: Any = {
            "platform": default_device().platform,
            "capacities": layer._capacities,
            "checked": flag("FLAGS_check_values"),
        }
        ops = view.blocks[0].ops
        if self._grads:
            self.backward = RecordedStretch(view, runnable(ops[count:]), list(self._grads.values()), **settings)
            self.needed = frozenset(self.backward.reads)
        forward = runnable(ops[:count])
        self.saved = self.needed & set(flow(view, forward)[1])
        wanted = dict.fromkeys([*outputs, *layer._written, *sorted(self.saved)])
        self.forward = RecordedStretch(view, forward, list(wanted), **settings)

    def _append_gradients(self, program: Program, outputs: Sequence[str], targets: Sequence[str]) -> None:
        block = program.global_block()
        roots = [(i, block.var(n)) for i, n in enumerate(outputs)]
        roots = [(i, v) for i, v in roots if is_floating(v.dtype) and not v.stop_gradient and _is_dense(v)]
        if not roots:
            return
        with tracer_guard(None), program_guard(program), program._backward_role_guard():
            # An output may depend on another one, or be returned twice: copies of them do not.
            ends = [assign(v) for _, v in roots]
            starts = [block.create_var(shape=v.shape, dtype=v.dtype) for _, v in roots]
            given: list[Any] | None = [*starts]
            if program._appending_grad_times:  # gradients of gradients take none of their targets, as in Fluid
                pairs = zip(ends, starts, strict=True)
                ends, given = [reduce_sum(elementwise_mul(end, start)) for end, start in pairs], None
            found = calc_gradient(ends, [block.var(n) for n in targets], given)
        self._starts = [(i, s.name) for (i, _), s in zip(roots, starts, strict=True)]
        self._grads = {n: g.name for n, g in zip(targets, found, strict=True) if g is not None}

    @property
    def targets(self) -> list[str]:
        """The variables that have a gradient."""
        return list(self._grads)

    def gradients(self, kept: dict[str, Any], grads: Sequence[Any], seed: Any) -> list[Any]:
        """The gradients of all inputs (None where there is none), given those of the outputs."""
        if self.backward is None:
            return [None] * len(self._names)
        given = {**kept, **{name: grads[index] for index, name in self._starts}}
        found = self.backward.run(given, seed)
        results = [found.get(self._grads[n]) if n in self._grads else None for n in self._names]
        return [None if r is None else VarBase._of("grad", Value(r)) for r in results]

    def recorded(
        self, layer: PartialProgramLayer, values: Sequence[VarBase], grads: Sequence[VarBase], seed: Any
    ) -> list[Any]:
        """The same for variables, with the gradients recorded in turn: forward and gradient ops run as one program."""
        if self.backward is None:
            return [None] * len(self._names)
        if self._layer is None:
            block = self._program.global_block()
            inputs = [block.var(n) for n in (*(v.name for v in layer.inputs), *(n for _, n in self._starts))]
            self._layer = PartialProgramLayer(
                self._program, inputs, [block.var(g) for g in self._grads.values()], layer.state
            )
            self._layer._written = []  # the first run has done that
        results = self._layer([*values, *(grads[index] for index, _ in self._starts)], seed)
        found = dict(zip(self._grads, results, strict=True))
        return [found.get(n) for n in self._names]


def _is_dense(var: Variable) -> bool:
    return var.type == VarType.LOD_TENSOR


def _computed(var: VarBase) -> Any:
    """What a variable holds; a vector in a buffer may stay there (see ``fluidjax.eager.sequences.packs``)."""
    value = var._value
    return var._array() if value is None else recorder.computed(value)


def _filled(grads: Sequence[VarBase | None], ends: Sequence[tuple[list[int], Any]]) -> list[Any]:
    """The values of gradients, with zeros for missing ones; `ends` supplies shapes and dtypes."""
    return [np.zeros(*end) if g is None else g._array() for g, end in zip(grads, ends, strict=True)]


def _variables(grads: Sequence[VarBase | None], ends: Sequence[tuple[list[int], Any]]) -> list[VarBase]:
    """The gradients, with zeros for missing ones."""
    return [VarBase(np.zeros(*end)) if g is None else g for g, end in zip(grads, ends, strict=True)]
