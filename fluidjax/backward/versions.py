"""Grad ops read the values that their forward ops read, even if the variables hold other values by then.

``y = x * x`` followed by ``assign(z, x)``: the gradient of the product needs the previous ``x``. Where a grad op would
find another value under a name, the value is copied before the forward op (to ``x@KEPT``), and the grad op reads the
copy. Fluid rewinds counters (the gradient of ``increment``), and a loop's gradient sees outer variables as they were
before the step or after it; where that gives the right value, nothing is copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import lowering
from fluidjax import unique_name
from fluidjax.backward.lives import hands_through
from fluidjax.backward.names import EMPTY, ROLE_FORWARD, is_grad
from fluidjax.backward.paths import sub_block_of
from fluidjax.base.enums import VarType
from fluidjax.framework import user_line
from fluidjax.framework.view import op_view, program_view
from lowering.engine.dataflow import GUARDED, definitions, sub_blocks
from lowering.loops.save_plan import seen_early
from lowering.program import ProgramView

if TYPE_CHECKING:
    from fluidjax.framework import Block, Operator, Program

KEPT = "@KEPT"
_STEP_INPUTS = "inputs"  # of recurrent_grad: the block refers to them by name, so no copy can replace them
_NO_BLOCKS = ProgramView(())
_RECURRENT = (_STEP_INPUTS, "initial_states")

Written = list[tuple["Operator", "Operator | None"]]


def keep_values(passes: Iterable[tuple[Block, Block, Written]]) -> None:
    """Let grad ops read the values that their forward ops read.

    Args:
        passes: (forward block, the block of its grad ops, these in order with their forward ops), inner blocks first.
    """
    rewound: dict[int, set[str]] = {}
    for block, target, written in passes:
        rewound[target.idx] = _keep_values(block, target, written, rewound)


def _keep_values(block: Block, target: Block, written: Written, rewound: Mapping[int, set[str]]) -> set[str]:
    """As above, for one block; returns the variables that have their first value again after the grad ops."""
    values = _Values(block, rewound)
    if values.changing:
        values.start(target)
        left = {id(op) for op in target.ops}
        for op, origin in written:
            if id(op) in left and origin is not None and id(origin) in values.position:
                values.follow(op, origin)
    return {name for name, now in values.now.items() if now == 0}


@dataclass
class _Read:
    """A read of ``name`` by a grad op itself, or in its block."""

    name: str
    slot: str = ""


class _Values:
    """How many times each variable has been written, forwards along the forward ops and back along the grad ops.

    Attributes:
        changing: the variables with several values in the block.
        now: name -> the number of the value that a grad op finds under it; None if it is none of them.
    """

    def __init__(self, block: Block, rewound: Mapping[int, set[str]]) -> None:
        self.block = block
        self.rewound = rewound  # gradient block -> the variables that it rewinds correctly
        self.ops = [op for op in block.ops if _is_forward(op)]
        self.position = {id(op): k for k, op in enumerate(self.ops)}
        self.writers: dict[str, list[int]] = {}
        self.changing = self._find_changing()
        self.now: dict[str, int | None] = {}
        self.kept: dict[tuple[str, int], str] = {}

    def _find_changing(self) -> set[str]:
        early: set[str] = set()
        for number, op in enumerate(self.ops):
            early.update(n for n in op.input_arg_names if n not in self.writers)
            for name in _written_anew(op):
                self.writers.setdefault(name, []).append(number)
        several = {n for n, ops in self.writers.items() if len(ops) > 1 or n in early}
        return {n for n in several if _changes(self.block, n)}

    def start(self, target: Block) -> None:
        """Set the values before the first grad op."""
        view = program_view(self.block.program)
        for name in self.changing:
            outer = self.block.idx != 0 and not self.block.has_var(name)
            early = outer and seen_early(view, self.block.idx, target.idx, name)
            self.now[name] = 0 if early else len(self.writers[name])

    def follow(self, op: Operator, origin: Operator) -> None:
        """Take grad op ``op`` of forward op ``origin`` into account."""
        number = self.position[id(origin)]
        if origin.type == "increment" and op.type == "increment":
            self._rewind(op.output("Out")[0], op.input("X")[0], number)
            return
        for read in self._reads(op):
            wanted = self._number(read.name, number, read.slot in origin.output_names and bool(read.slot))
            if self.now[read.name] != wanted:
                self._read_copy(op, read, wanted)
        inner = sub_block_of(op)
        if inner is not None:
            for name in self.changing & _rewound(op.block.program, inner):
                self._rewind(name, name, number)
                if name not in self.rewound.get(inner, ()):
                    self.now[name] = None

    def _rewind(self, target: str, source: str, number: int) -> None:
        """Record that a grad op returns ``target`` to ``source``, its value after op ``number``."""
        if target in self.changing:
            right = source not in self.changing or self.now[source] == self._number(source, number, True)
            self.now[target] = self._number(target, number, False) if right else None

    def _number(self, name: str, number: int, after: bool) -> int:
        """The number of the value that ``name`` has before forward op ``number``, or after it."""
        return sum(1 for k in self.writers[name] if k < number + after)

    def _reads(self, op: Operator) -> Iterator[_Read]:
        inner = sub_block_of(op)
        if inner is not None:
            yield from (_Read(n) for n in sorted(self.changing & _reads_inside(op.block.program, inner)))
            for slot in (s for s in _RECURRENT if s in op.input_names):
                yield from (_Read(n, slot) for n in op.input(slot) if n in self.changing)
            return
        definition = lowering.get_op(op.type)
        for slot in op.input_names:
            spec = definition.input(slot)
            if spec is None or spec.wants != "meta":
                yield from (_Read(n, slot) for n in op.input(slot) if n in self.changing)

    def _read_copy(self, op: Operator, read: _Read, wanted: int) -> None:
        if read.slot == _STEP_INPUTS:
            raise ValueError(_overwritten_steps(op, read.name))
        copy = self.kept.get((read.name, wanted)) or self._copy(read.name, wanted)
        inner = sub_block_of(op)
        if inner is not None and not read.slot:
            _rename_inside(op.block.program, inner, read.name, copy)
            return
        op.desc.set_input(read.slot, [copy if n == read.name else n for n in op.input(read.slot)])

    def _copy(self, name: str, wanted: int) -> str:
        """Insert a copy of value ``wanted`` after the op that computes it."""
        block, var = self.block, self.block._var_recursive(name)
        copy = unique_name.generate(name + KEPT)
        block.create_var(name=copy, type=var.type, dtype=var.dtype, shape=var.shape, lod_level=var.lod_level)
        place = 0
        if wanted:
            maker = self.ops[self.writers[name][wanted - 1]]
            place = next(k for k, op in enumerate(block.ops) if op is maker) + 1
        attrs = {"op_role": ROLE_FORWARD, "op_device": ""}
        block._append_op_desc("assign", {"X": [name]}, {"Out": [copy]}, attrs, index=place)
        self.kept[name, wanted] = copy
        return copy


def _overwritten_steps(op: Operator, name: str) -> str:
    return (
        f"gradient of a StaticRNN in block {op.block.idx}: its step_input {name!r} is overwritten after it"
        f" ({user_line(op)}); expected the values that its steps have read. Write to another variable, or give the"
        f" StaticRNN a copy, layers.assign({name})"
    )


def _is_forward(op: Operator) -> bool:
    return not op.has_attr("op_role") or int(op.attr("op_role")) & 3 == 0


def _writes(op: Operator) -> list[str]:
    """What ``op`` writes; most ops have no nested blocks, and need no view of the whole program."""
    view = op_view(op)
    blocks = program_view(op.block.program) if sub_blocks(view) else _NO_BLOCKS
    return definitions(blocks, view)


def _written_anew(op: Operator) -> list[str]:
    """The variables to which ``op`` gives another value; a loop that passes a variable through does not."""
    inner = sub_block_of(op)
    names = _writes(op)
    if inner is None:
        return [] if op.type == "assign" and hands_through(op) else names
    block = op.block.program.block(inner)
    anew = {n for inside in block.ops for n in _written_anew(inside)}
    return [n for n in names if n in anew or op.type not in GUARDED]


def _changes(block: Block, name: str) -> bool:
    """Whether values of ``name`` are distinguished: not for statistics updated by ops, nor for arrays."""
    var = block._find_var_recursive(name)
    return var is not None and var.type == VarType.LOD_TENSOR and not var.persistable and not is_grad(name)


def _reads_inside(program: Program, index: int) -> set[str]:
    """The outer variables that the ops of gradient block ``index``, and of blocks inside it, read.

    What the forward block writes is excluded: its steps save that.
    """
    block = program.block(index)
    forward = program.block(block.forward_block_idx)
    own = {n for op in forward.ops for n in _writes(op)}
    found: set[str] = set()
    for op in block.ops:
        inner = sub_block_of(op)
        found |= set(op.input_arg_names) if inner is None else _reads_inside(program, inner)
    return {n for n in found if n not in own and not forward.has_var(n)}


def _rewound(program: Program, index: int) -> set[str]:
    """Forward variables around gradient block ``index`` that it writes."""
    block = program.block(index)
    forward = program.block(block.forward_block_idx)
    names = {n for op in block.ops for n in _writes(op) if n != EMPTY and not is_grad(n)}
    return {n for n in names if not block.has_var(n) and not forward.has_var(n)}


def _rename_inside(program: Program, index: int, old: str, new: str) -> None:
    """Make the ops of block ``index``, and of blocks inside it, read ``new`` instead of ``old``."""
    for op in program.block(index).ops:
        inner = sub_block_of(op)
        if inner is not None:
            _rename_inside(program, inner, old, new)
        elif old in op.input_arg_names:
            op._rename_input(old, new)
