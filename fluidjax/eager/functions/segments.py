"""Programs in eager mode: their ops run as recorded ones do, one by one at first, and compiled once they recur.

A segment of a program becomes a sequence of records, once for each set of shapes and dtypes of what it reads; the
blocks of eager mode (see ``blocks``) then decide how it runs. What records cannot hold is compiled at first sight as
ever: loops and branches, values with a LoD, results whose shapes follow from numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import numpy as np

from fluidjax.base.enums import VarType
from fluidjax.base.flags import FLAGS
from fluidjax.eager.forms import aliases_of
from fluidjax.eager.kernels import Kernel, kernel_of
from fluidjax.eager.recorded.demands import demand_of
from fluidjax.eager.recorded.pending import recorder
from fluidjax.eager.sequences.packs import Piece, taken
from fluidjax.eager.sequences.points import Point, Tree
from fluidjax.eager.slots import flatten
from fluidjax.eager.values import KEY, Spec, spec_of
from fluidjax.execution.steps.stretch import Stretch
from lowering.draws.host_bits import fold_in
from lowering.engine import kinds
from lowering.engine.interrupts import uninterrupted
from lowering.engine.plan import Segment
from lowering.engine.run import number_of
from lowering.program import EMPTY, OpView, ProgramView
from lowering.registry import get_op
from lowering.values import SelectedRows

_VALUES = np.ndarray, jax.Array, SelectedRows, Piece


class RecordedStretch(Stretch):
    """A stretch whose segments are records where they can be."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._sequences: dict[Any, Sequence | None] = {}
        super().__init__(*args, **kwargs)

    @property
    def traces(self) -> int:
        """How often ops were compiled together."""
        points = {sequence.point for sequence in self._sequences.values() if sequence is not None}
        return super().traces + sum(map(recorder.blocks.compilations_of, points))

    def _run(self, segment: Segment, env: dict[str, Any], seed: Any) -> bool:
        sequence = self._sequence(segment, env)
        found = None if sequence is None else uninterrupted(partial(sequence.run, env, seed))
        if found is None:
            return super()._run(segment, env, seed)
        env.update(found)
        return True

    def _placed(self, value: Any) -> Any:
        return super()._placed(taken(value))

    def _sequence(self, segment: Segment, env: Mapping[str, Any]) -> Sequence | None:
        """The segment as records, for values of these shapes and dtypes; None if it cannot be."""
        if segment.host or not FLAGS["FLAGS_eager_blocks"] or FLAGS["FLAGS_cpu_deterministic"]:
            return None
        given = {name: env[name] for name in segment.reads if name in env}
        if not all(isinstance(value, _VALUES) for value in given.values()):
            return None
        specs = {name: spec_of(value) for name, value in given.items()}
        key = segment.ops[0].index, segment.ops[-1].index, segment.writes, *specs.items()
        if key not in self._sequences:
            self._sequences[key] = self._recorded(segment, given, specs)
        return self._sequences[key]

    def _recorded(self, segment: Segment, given: Mapping[str, Any], specs: Mapping[str, Spec]) -> Sequence | None:
        if self._program.newer or kinds.strangers(self._program, given) or not all(map(_alone, segment.ops)):
            return None  # these need more than each op's kernel
        sequence = Sequence(self._program, specs, checked=self._checked)
        try:
            return sequence if all(map(sequence.add, segment.ops)) and sequence.end(segment.writes) else None
        except Exception:  # of an op that cannot take what it is given: compiled ops say so, with the user's line
            return None


def _alone(op: OpView) -> bool:
    """Whether an op is a function of arrays alone."""
    definition = get_op(op.type)
    return definition.kind == "plain" and not definition.updates and not definition.continues


class Sequence:
    """Ops of a program as records.

    Args:
        program: the program.
        specs: of what the ops read.
        checked: whether labels, ids and divisors are checked.

    Attributes:
        point: the last record.
    """

    def __init__(self, program: ProgramView, specs: Mapping[str, Spec], *, checked: bool) -> None:
        self._program, self._checked = program, checked
        self.point: Point = Tree().root()
        self._given = specs
        self._leaves: list[str | int] = []  # the name of each, or the number of a draw
        self._codes: dict[str, int] = {}  # of the value that a name has
        self._specs: dict[int, Spec] = {}
        self._draws: dict[str, int] = {}
        self._flags: list[int] = []
        self._fresh: list[Spec] = []
        self._gives: dict[str, int] = {}
        self._alive: tuple[int, ...] = ()

    def add(self, op: OpView) -> bool:
        """Add an op; False if it cannot be recorded."""
        definition, inputs = get_op(op.type), self._inputs(op)
        if inputs is None or ("ctx" in definition.special and not self._dense(op)):
            return False
        ins, in_layout = flatten(inputs)
        kernel = self._kernel(op, ins, in_layout)
        codes = [self._code(name) for name in ins]
        specs = tuple([self._specs[code] for code in codes])
        if kernel.checked and self._checked and (check := demand_of(kernel, specs)) is not None:
            self._flags.append(self._record(check, codes, check.known[specs]))
        found = kernel.known[specs] if specs in kernel.known else kernel.infer(specs)
        if found is None:
            return False
        slots = {slot.name for slot in definition.outputs}
        names = [name for slot, names in op.outputs.items() if slot in slots for name in names]
        if found and found[0].__class__ is int:  # inputs passed through need no op
            self._codes.update(zip(names, [codes[k] for k in found], strict=True))
            return True
        if "key" in definition.special:
            count = self._draws.setdefault(names[0], 0)
            self._draws[names[0]] = count + 1
            if not kernel.takes_key and count:
                return False  # a kernel with a seed of its own has the key of the first draw
            if kernel.takes_key:
                codes.insert(0, self._leaf((number_of(names[0]) + count) & 0x7FFFFFFF, KEY))
        first = self._record(kernel, codes, found)
        for k, (name, spec) in enumerate(zip(names, found, strict=True)):
            self._codes.pop(name, None)
            if name != EMPTY and isinstance(spec, Spec):
                self._codes[name], self._specs[first + k] = first + k, spec
        return True

    def end(self, writes: tuple[str, ...]) -> bool:
        """No op follows; `writes`: what is wanted of the ops. False if there is nothing to run."""
        self._gives = {name: self._codes[name] for name in writes if name in self._codes}
        self._alive = tuple(sorted({code for code in self._gives.values() if code >= 0}.union(self._flags)))
        return bool(self._alive)

    def run(self, env: Mapping[str, Any], seed: Any) -> dict[str, Any] | None:
        """The results by name; None if an op cannot take a number, in which case compiled ops say which."""
        arrays = [env[leaf] if isinstance(leaf, str) else fold_in(np.asarray(seed), leaf) for leaf in self._leaves]
        values = dict(zip(self._alive, recorder.blocks.run(self.point, [*arrays], self._alive), strict=True))
        if any(bool(np.asarray(taken(values[flag]))[0]) for flag in self._flags):
            return None
        return {n: taken(values[code]) if code >= 0 else taken(arrays[~code]) for n, code in self._gives.items()}

    def _inputs(self, op: OpView) -> dict[str, list[str]] | None:
        """The variables of the op's slots; None if one has no value that has to have one."""
        found = {}
        for slot in get_op(op.type).inputs:
            names = [n for n in op.inputs.get(slot.name) or ()]
            missing = [n for n in names if n not in self._codes and n not in self._given]
            if missing and (slot.duplicable or not slot.dispensable):
                return None
            if names and not missing:
                found[slot.name] = names
        return found

    def _dense(self, op: OpView) -> bool:
        """Whether all that an op writes is declared as arrays, as kernels take it to be."""
        variables = [self._program.find_var(op.block_idx, name) for name in op.output_names()]
        return all(var is None or var.type == VarType.LOD_TENSOR for var in variables)

    def _kernel(self, op: OpView, ins: list[str], layout: Any) -> Kernel:
        definition = get_op(op.type)
        known = {slot.name for slot in definition.outputs}
        outs, out_layout = flatten({slot: list(names) for slot, names in op.outputs.items() if names and slot in known})
        inherits = definition.forward is not None
        attrs = {k: v for k, v in op.attrs.items() if not k.startswith("op_") and (inherits or k in definition.attrs)}
        declared: tuple[VarType, ...] = ()
        if "ctx" in definition.special:
            variables = [self._program.find_var(op.block_idx, name) for name in outs]
            declared = tuple([VarType.FP32 if var is None else VarType(var.dtype) for var in variables])
        wanted = tuple([name != EMPTY for name in outs])
        return kernel_of(
            op.type,
            attrs,
            layout,
            out_layout,
            wanted=wanted if op.is_backward or not all(wanted) else None,
            aliases=aliases_of(ins, outs) if definition.inplace else (),
            declared=declared,
            backward=op.is_backward,
        )

    def _code(self, name: str) -> int:
        if name not in self._codes:
            self._codes[name] = self._leaf(name, self._given[name])
        return self._codes[name]

    def _leaf(self, source: str | int, spec: Spec) -> int:
        self._leaves.append(source)
        self._fresh.append(spec)
        code = ~(len(self._leaves) - 1)
        self._specs[code] = spec
        return code

    def _record(self, kernel: Kernel, codes: list[int], outs: Any) -> int:
        """The number of the record's first output."""
        fresh, self._fresh = tuple(self._fresh), []
        self.point = self.point.after(kernel, tuple(codes), fresh, outs, False)
        return self.point.first
