"""Every registered operator equals its proto in Paddle 1.8.5: slots, attributes, defaults, LoD sharing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lowering
from tests.spec import op_protos

OPS = sorted(set(lowering.registered_ops()) & set(op_protos()))


def slots_of(entries: list[dict[str, Any]]) -> dict[str, tuple[bool, bool]]:
    """slot -> (duplicable, dispensable) of a spec entry."""
    return {s["slot"]: (bool(s.get("duplicable")), bool(s.get("dispensable"))) for s in entries}


def attrs_of(entries: list[dict[str, Any]]) -> dict[str, tuple[str, Any]]:
    """name -> (type, default) of a spec entry; 'required' where the checker has no default."""
    return {a["name"]: (a["type"], "required" if a.get("no_default") else a["default"]) for a in entries}


def same_default(ours: Any, theirs: Any) -> bool:
    """Whether two attribute defaults are equal; floats as float32, which is what a file holds."""
    if isinstance(theirs, float) and isinstance(ours, (int, float)):
        return np.float32(ours) == np.float32(theirs)
    if isinstance(theirs, list) and isinstance(ours, list):
        return len(ours) == len(theirs) and all(same_default(a, b) for a, b in zip(ours, theirs, strict=True))
    return type(ours) is type(theirs) and ours == theirs


def test_some_operators_are_registered():
    assert OPS


@pytest.mark.parametrize("op_type", OPS)
def test_slots(op_type):
    ours, theirs = lowering.get_op(op_type), op_protos()[op_type]
    inputs = {s.name: (s.duplicable, s.dispensable) for s in ours.inputs if not s.newer}
    assert inputs == slots_of(theirs["inputs"])
    # The backward pass leaves out gradients that nobody needs, so here every output of a gradient op is dispensable.
    optional = {s.name for s in ours.outputs if ours.forward is not None}
    written = [s for s in ours.outputs if not s.newer]
    outputs = {s.name: (s.duplicable, s.dispensable and s.name not in optional) for s in written}
    assert outputs == slots_of(theirs["outputs"])


@pytest.mark.parametrize("op_type", OPS)
def test_intermediate_outputs(op_type):
    ours, theirs = lowering.get_op(op_type).outputs, op_protos()[op_type]["outputs"]
    assert {s.name for s in ours if s.intermediate} == {s["slot"] for s in theirs if s.get("intermediate")}


@pytest.mark.parametrize("op_type", OPS)
def test_attributes(op_type):
    ours = {name: spec for name, spec in lowering.get_op(op_type).attrs.items() if not spec.newer}
    theirs = attrs_of(op_protos()[op_type]["attrs"])
    assert sorted(ours) == sorted(theirs)
    for name, (kind, default) in theirs.items():
        assert ours[name].type == kind, f"type of {name}"
        assert ours[name].required == (isinstance(default, str) and default == "required"), f"required: {name}"
        if not ours[name].required:
            assert same_default(ours[name].default, default), f"{name}: {ours[name].default!r}, not {default!r}"


@pytest.mark.parametrize("op_type", [t for t in OPS if op_protos()[t].get("share_lod")])
def test_lod_sharing(op_type):
    """An output shares its LoD as in Paddle, or its rule takes the LoDArray and sets the LoD itself."""
    ours = lowering.get_op(op_type)
    aware = {s.name for s in ours.inputs if s.wants in ("lod", "raw")}
    sources: dict[str, set[str]] = {}
    for source, target in op_protos()[op_type]["share_lod"]:
        if target == "?":
            continue  # depends on the shapes, which operand is the larger
        sources.setdefault(target, set()).add(source)
    for target, allowed in sources.items():
        assert allowed & aware or ours.lod.get(target) in allowed, f"{target} takes its LoD from {sorted(allowed)}"


@pytest.mark.parametrize("op_type", OPS)
def test_formula(op_type):
    assert lowering.get_op(op_type).doc, "the docstring holds the formula"
