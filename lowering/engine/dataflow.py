"""What ops and blocks read and write: the analysis shared by plans, pruning, recomputation and loops.

An op reads a variable through an input slot, in a block that it runs, or through an output slot whose variable it
continues from (``OpDef.continues``). It writes one through an output slot, in a block that it runs, or through an input
slot that it changes (``OpDef.updates``, ``OpDef.changes``). In compiler terms these are uses and definitions. An op
kills a variable if it is certain to replace its entire value: a block that may not run kills nothing outside, nor does
a write of one element of an array.

Invariant: when an op runs, it looks up no name other than its uses and changes no name other than its definitions;
afterwards, every name that it kills has a new value, or none at all. An analysis may overstate uses and
definitions, never kills.

Names are those of the block that contains the op. Variables declared by a block are its own, and so are, for a gradient
block, those declared by its forward block, which come out of step scopes. The gradients inside a gradient block belong
to its backward pass, whatever the names mean outside; they enter and leave by the slots of the op.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum

from lowering.program import EMPTY, GRAD, OpView, ProgramView, forward_names
from lowering.registry import OpDef, get_op, has_op

# Ops that only mark where values enter and leave; the executor does their work.
MARKERS = frozenset({"feed", "fetch", "read", "create_py_reader", "create_double_buffer_reader"})

# Ops whose block may not run: outer variables that it writes may keep their values.
GUARDED = frozenset({"while", "conditional_block", "conditional_block_infer"})


class Use(IntEnum):
    """How much of a variable an op reads; each level includes the previous ones."""

    HINT = 1  # inspected if present, to find a structure; the op can do without it
    SHAPE = 2  # shape, dtype and LoD
    DATA = 3


Uses = dict[str, Use]


def sub_blocks(op: OpView) -> list[int]:
    """Indices of the blocks that an op runs: those of its BLOCK and BLOCKS attributes."""
    definition = _definition(op)
    if definition is None:
        return [int(op.attrs["sub_block"])] if op.attrs.get("sub_block") is not None else []
    found: list[int] = []
    for name, several in definition.block_attrs:
        value = op.attrs.get(name)
        if value is not None:
            found += map(int, value if several else [value])
    return found


def uses(program: ProgramView, op: OpView) -> Uses:
    """What an op reads, in order; of what its blocks read, the outer names."""
    definition = _definition(op)
    found: Uses = {}
    for slot, names in op.inputs.items():
        _add(found, {n: _slot_use(definition, op, slot) for n in names if n != EMPTY})
    for slot in _continued(definition, op):
        _add(found, {n: Use.DATA for n in op.outputs.get(slot) or () if n != EMPTY})
    for idx in sub_blocks(op):
        _add(found, {n: use for n, use in block_uses(program, idx).items() if _is_around(program, op, idx, n)})
    if definition is not None and definition.kind == "block" and op.computes_gradients:
        _add(found, {n: Use.HINT for n in _forward_variables(program, op)})
    return found


def _continued(definition: OpDef | None, op: OpView) -> tuple[str, ...]:
    if definition is None or (definition.continues_if and not op.attrs.get(definition.continues_if)):
        return ()
    return definition.continues


def definitions(program: ProgramView, op: OpView) -> list[str]:
    """What an op may write, in order; of what its blocks write, the outer names."""
    found = dict.fromkeys([*op.output_names(), *_changed_inputs(op)])
    for idx in sub_blocks(op):
        found.update(dict.fromkeys(_definitions_around(program, op, idx)))
    return list(found)


def kills(program: ProgramView, op: OpView) -> set[str]:
    """What is certain to be replaced entirely by an op."""
    definition = _definition(op)
    continued = _continued(definition, op)
    sure = {n for slot, names in op.outputs.items() if slot not in continued for n in names if n != EMPTY}
    if op.type not in GUARDED:
        return sure
    return sure.difference(*(_definitions_around(program, op, idx) for idx in sub_blocks(op)))


def needs(program: ProgramView, op: OpView) -> Uses:
    """What must have its value before an op: what it uses, and what it may leave unchanged."""
    return _needs(uses(program, op), kills(program, op), definitions(program, op))


def _needs(used: Uses, killed: set[str], defined: list[str]) -> Uses:
    _add(used, {n: Use.DATA for n in defined if n not in killed})
    return used


def flow(program: ProgramView, ops: Iterable[OpView]) -> tuple[Uses, list[str]]:
    """(what ``ops`` need before the first of them, what they may write), each in order."""
    needed: Uses = {}
    written: dict[str, None] = {}
    killed: set[str] = set()
    for op in ops:
        sure, defined = kills(program, op), definitions(program, op)
        found = _needs(uses(program, op), sure, defined)
        _add(needed, {n: use for n, use in found.items() if n not in killed})
        killed |= sure
        written.update(dict.fromkeys(defined))
    return needed, list(written)


def block_uses(program: ProgramView, idx: int) -> Uses:
    """What block ``idx`` reads before it replaces the value; the block's own variables are included."""
    found: Uses = {}
    killed: set[str] = set()
    for op in program.blocks[idx].ops:
        _add(found, {n: use for n, use in uses(program, op).items() if n not in killed})
        killed |= kills(program, op)
    return found


def all_writes(program: ProgramView, idx: int) -> set[str]:
    """Every name that block ``idx`` or a nested block writes, including the blocks' own variables."""
    found: set[str] = set()
    for op in program.blocks[idx].ops:
        found.update(op.output_names(), _changed_inputs(op))
        for inner in sub_blocks(op):
            found |= all_writes(program, inner)
    return found


def _definition(op: OpView) -> OpDef | None:
    """The op's definition; a program that is only analyzed may contain unregistered ops."""
    return get_op(op.type) if has_op(op.type) else None


def _slot_use(definition: OpDef | None, op: OpView, slot: str) -> Use:
    if op.type == "read_from_array" and slot == "X_W":
        return Use.HINT  # the gradient of a write also knows the element's structure from the gradient array
    spec = definition.input(slot) if definition is not None else None
    return Use.SHAPE if spec is not None and spec.wants == "meta" else Use.DATA


def _add(found: Uses, more: Uses) -> None:
    for name, use in more.items():
        found[name] = max(found.get(name, Use.HINT), use)


def _changed_inputs(op: OpView) -> list[str]:
    definition = _definition(op)
    if definition is None:
        return []
    slots = [*definition.updates, *(definition.changes if op.computes_gradients else ())]
    return [n for slot in slots for n in op.inputs.get(slot) or () if n != EMPTY]


def _is_around(program: ProgramView, op: OpView, idx: int, name: str) -> bool:
    """Whether ``name`` in block ``idx`` of ``op`` refers to an outer variable."""
    block = program.blocks[idx]
    if name in block.vars:
        return False
    if block.forward_idx < 0:
        return True
    return GRAD not in name and name not in program.blocks[block.forward_idx].vars


def _definitions_around(program: ProgramView, op: OpView, idx: int) -> Iterator[str]:
    for inner in program.blocks[idx].ops:
        yield from (n for n in definitions(program, inner) if _is_around(program, op, idx, n))


def _forward_variables(program: ProgramView, op: OpView) -> Iterator[str]:
    """The declared variables to which the gradients in the op's slots belong."""
    for gradient in [*op.input_names(), *op.output_names()]:
        yield from (n for n in forward_names(gradient) if program.find_var(op.block_idx, n) is not None)
