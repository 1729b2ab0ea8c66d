"""Shape inference by a rule in the common case, otherwise by probing: tracing an op twice takes milliseconds.

A rule covers only the common case of a common op: one tensor per slot, or several of one shape and dtype; one floating
dtype beside integers; nothing empty. Anything unusual or wrong goes to the probes, whose answers and errors stand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from lowering.dtypes import FP32, FP64, INT32, INT64, LOD_TENSOR
from lowering.engine.shapes.infer import by_probing
from lowering.program import EMPTY, OpView, VarInfo, VarOf, VarView
from lowering.registry import OpDef, get_op

Shape = tuple[int, ...]


class Out(NamedTuple):
    """An output that has more than a shape of its own: another dtype than the inputs', or the LoD level of a slot."""

    shape: Shape
    dtype: int | None = None
    lod: str = ""


# (shape by input slot, unknown dims being -1; attribute by name) -> output by slot; None: use the probes
Rule = Callable[[Mapping[str, Shape], Callable[[str], Any]], Mapping[str, Shape | Out] | None]
Inference = Callable[[OpView, VarOf], dict[str, VarInfo]]


def by_rule(rule: Rule) -> Inference:
    """The inference of an op whose outputs are given by ``rule``, in the dtype of its floating inputs."""

    def infer(op: OpView, var_of: VarOf) -> dict[str, VarInfo]:
        definition = get_op(op.type)
        found = _ruled(rule, definition, op, var_of)
        return by_probing(definition, op, var_of) if found is None else found

    return infer


def like(slot: str, *outputs: str) -> Inference:
    """The inference of an op whose ``outputs`` (Out) are shaped like ``slot``."""
    return by_rule(lambda shapes, attr: dict.fromkeys(outputs or ("Out",), shapes[slot]))


def _ruled(rule: Rule, definition: OpDef, op: OpView, var_of: VarOf) -> dict[str, VarInfo] | None:
    inputs = _tensors(definition, op, var_of)
    dtypes = {v.dtype for v in (inputs or {}).values()} - {INT32, INT64}
    if inputs is None or len(dtypes) != 1 or not dtypes <= {FP32, FP64}:
        return None
    attr = lambda name: op.attrs.get(name, definition.attrs[name].default)  # noqa: E731
    try:
        shapes = rule({slot: tuple(max(d, -1) for d in v.shape) for slot, v in inputs.items()}, attr)
    except ValueError:  # the op would refuse these sizes
        shapes = None
    if shapes is None:
        return None
    found: dict[str, VarInfo] = {}
    for slot, out in shapes.items():
        shape, dtype, lod = out if isinstance(out, Out) else Out(out, lod=definition.lod.get(slot, ""))
        source = inputs.get(lod)
        info = VarInfo(shape, next(iter(dtypes)) if dtype is None else dtype, 0 if source is None else source.lod_level)
        found.update((n, info) for n in op.outputs.get(slot) or () if n != EMPTY)
    return found


def _tensors(definition: OpDef, op: OpView, var_of: VarOf) -> dict[str, VarView] | None:
    """The first tensor of each slot that is bound; None if one is missing, unlike it, or not covered by rules."""
    found: dict[str, VarView] = {}
    for slot in definition.inputs:
        names = op.inputs.get(slot.name) or ()
        if not names and slot.dispensable:
            continue
        var = var_of(names[0]) if names else None
        if var is None or var.type != LOD_TENSOR or not var.shape or 0 in var.shape:
            return None
        if any((other := var_of(n)) is None or _form(other) != _form(var) for n in names[1:]):
            return None
        found[slot.name] = var
    return found


def _form(var: VarView) -> tuple[Any, ...]:
    return var.type, var.dtype, tuple(var.shape)
