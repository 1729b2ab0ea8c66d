"""Ops that run one by one, on sizes that change from step to step of a loop: one compilation for many sizes.

A dim that the program leaves open (-1) gets room for more than its size, up to the next power of two, and the op runs
as on any ``Wide`` value; what it returns is cut to its size on the host. Open dims of the same size have the same
label: that they do is a part of what was compiled. So nothing is assumed about sizes, and an op without a rule, or
whose rule refuses, runs on the values as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from lowering.engine.single import CompiledOp
from lowering.errors import Need
from lowering.program import OpView, ProgramView
from lowering.registry import OpDef, Slot
from lowering.sizes.counts import SlotValues, each, flat
from lowering.values import Axis, LoDArray, Wide, data_of, exact
from lowering.wide.call import is_wide
from lowering.wide.rules import RULES

# The least room: smaller sizes, as of beams and of first steps, share one kernel.
LEAST = 8


def run_with_room(
    compiled: CompiledOp, definition: OpDef, op: OpView, values: SlotValues, key: Any, program: ProgramView
) -> SlotValues | None:
    """The results of an op, computed with room along its open dims.

    None if the op cannot take them, has not run on other sizes yet, or often on these: sizes that stay need no room.
    """
    if definition.forward is not None or definition.updates or op.type not in RULES or not _movable(definition, values):
        return None
    if not compiled.wants_room(tuple(op.input_names()), tuple(np.shape(v) for v in flat(values) if v is not None)):
        return None
    ragged = any(isinstance(v, LoDArray) and v.lod for v in flat(values))
    passed = compiled.passes(values, key) if ragged else {}
    for given in _roomy(definition, op, values, program) if passed is not None else ():
        if compiled.need(given) is None:
            try:
                results = each(compiled.run(given, key), _cut)
            except Need as need:
                compiled.note(given, need)
                continue
            return _with_lod(results, passed, jax.tree_util.tree_leaves(values)) if ragged else results
    return None


def _movable(definition: OpDef, values: SlotValues) -> bool:
    """Whether all values are arrays, or rows whose number of sequences does not matter to the op."""
    return all(_is_array(slot, v) for slot in definition.inputs for v in flat({"": values[slot.name]}))


def _is_array(slot: Slot, value: Any) -> bool:
    if isinstance(value, LoDArray):
        return not value.padded and (slot.wants != "meta" or not value.lod)
    return value is None or isinstance(value, (jax.Array, np.ndarray))


def _with_lod(results: SlotValues, passed: SlotValues, leaves: list[Any]) -> SlotValues:
    """``results`` with the offsets among ``leaves`` that ``passed`` numbers: see ``CompiledOp.passes``."""
    found: SlotValues = {}
    for slot, value in results.items():
        like = passed[slot]
        if isinstance(value, (list, tuple)):
            found[slot] = [_as_rows(v, one, leaves) for v, one in zip(value, like, strict=True)]
        else:
            found[slot] = _as_rows(value, like, leaves)
    return found


def _as_rows(value: Any, like: Any, leaves: list[Any]) -> Any:
    if not isinstance(like, LoDArray):
        return value
    nseq = None if like.nseq is None else leaves[like.nseq]
    return LoDArray(value, tuple(leaves[i] for i in like.lod), None, nseq, like.longest, like.tight)


def _roomy(definition: OpDef, op: OpView, values: SlotValues, program: ProgramView) -> Iterator[SlotValues]:
    """The values with room along all open dims; then, for ops that need to know the rows, along all but the first."""
    for first in (0, 1):
        labels: dict[int, int] = {}
        given: SlotValues = {}
        for slot in definition.inputs:
            value, names = values[slot.name], op.inputs.get(slot.name) or ()
            many = value if isinstance(value, list) else [value]
            found = [_widened(v, _open(program, op, n, v, first), labels) for n, v in zip(names, many, strict=False)]
            given[slot.name] = found if isinstance(value, list) else (found or [None])[0]
        if not any(map(is_wide, flat(given))):
            return
        yield given


def _open(program: ProgramView, op: OpView, name: str, value: Any, first: int) -> list[int]:
    """The dims of a variable, from ``first`` on, whose sizes the program does not say."""
    var = program.find_var(op.block_idx, name)
    if value is None or var is None or var.shape is None or len(var.shape) != len(value.shape):
        return []
    return [d for d, n in enumerate(var.shape) if n < 0 and d >= first and value.shape[d]]


def _widened(value: Any, dims: list[int], labels: dict[int, int]) -> Any:
    """``value`` with room along ``dims``, which holds copies of the first position."""
    if value is None or not dims:
        return None if value is None else data_of(value)
    data = np.asarray(data_of(value))
    axes = tuple(Axis(d, room(data.shape[d]), labels.setdefault(data.shape[d], len(labels))) for d in dims)
    counts = tuple(np.int32(data.shape[d]) for d in dims)
    roomy = np.empty([{a.dim: a.room for a in axes}.get(d, n) for d, n in enumerate(data.shape)], data.dtype)
    roomy[tuple(slice(n) for n in data.shape)] = data
    for axis in axes:
        used = data.shape[axis.dim]
        before = (slice(None),) * axis.dim
        after = tuple(slice(n) for n in data.shape[axis.dim + 1 :])
        roomy[(*before, slice(used, None), *after)] = roomy[(*before, slice(1), *after)]
    return Wide(roomy, counts, axes)


def room(size: int) -> int:
    """The room for a size: a power of two."""
    return max(LEAST, 1 << (size - 1).bit_length())


def _cut(value: Any) -> Any:
    return exact(value) if is_wide(value) else value
