"""What grad ops have in common: their slots, attributes and LoD follow from the forward op."""

from __future__ import annotations

from collections.abc import Iterable

from lowering.program import GRAD
from lowering.registry.definition import AttrSpec, OpDef, Slot


def differentiable_params(definition: OpDef) -> tuple[str, ...]:
    """The parameters whose values the rule reads; those annotated ``Meta`` are excluded."""
    return tuple(s.param for s in definition.inputs if s.wants != "meta")


def inherited_attrs(forward: OpDef) -> dict[str, AttrSpec]:
    """A derived gradient calls the forward function, so it reads the same attributes."""
    return {name: spec._replace(required=False) for name, spec in forward.attrs.items()}


def gradient_outputs(forward: OpDef, wrt: Iterable[str]) -> list[Slot]:
    """The output slots of a grad op: X@GRAD, as parameter d_x, for each of the forward parameters ``wrt``."""
    slots = [forward.slot_of(p) for p in wrt]
    return [Slot(s.name + GRAD, "d_" + s.param, s.duplicable, True) for s in slots if s is not None]


def grad_lod_map(definition: OpDef) -> dict[str, str]:
    """X@GRAD has the LoD of X if the grad op reads X, otherwise that of the first output gradient it reads."""
    reads = [s.name for s in definition.inputs if not s.newer]
    fallback = next((n for n in reads if n.endswith(GRAD)), None)
    shared = {s.name: s.name[: -len(GRAD)] if s.name[: -len(GRAD)] in reads else fallback for s in definition.outputs}
    return {out: source for out, source in shared.items() if source is not None}
