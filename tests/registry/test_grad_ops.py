"""The gradient ops that each operator's maker writes equal those of Paddle 1.8.5, slot by slot and name by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lowering
from lowering.program import OpView
from tests.spec import op_protos

REGISTERED = set(lowering.registered_ops())
# Their gradient needs a gradient sub-block, which the maker gets from append_backward: held against whole programs.
WITH_BLOCKS = {"while", "conditional_block", "recurrent", "run_program"}


def variants() -> list[tuple[str, str]]:
    """(operator, spec entry) of every gradient entry: all slots, required slots only, attribute variants."""
    found = []
    for op_type, proto in op_protos().items():
        if op_type not in REGISTERED or op_type in WITH_BLOCKS or "grad" not in proto:
            continue
        found += [(op_type, key) for key in ("all_slots", "required_only") if key in proto["grad"]]
        found += [(op_type, key) for key in proto["grad"].get("attr_variants", {})]
    return found


def entry_of(op_type: str, key: str) -> dict[str, Any]:
    """The spec entry of a variant."""
    grad = op_protos()[op_type]["grad"]
    return grad[key] if key in grad else grad["attr_variants"][key]


def names(slot: dict[str, Any], required_only: bool, taken: set[str]) -> list[str]:
    """The dummy variables that the spec's entry was made with: named as their slots."""
    if required_only and slot.get("dispensable"):
        return []
    base = f"out:{slot['slot']}" if slot["slot"] in taken else slot["slot"]
    return [f"{base}.0", f"{base}.1"] if slot.get("duplicable") else [base]


def attributes(op_type: str, key: str) -> dict[str, Any]:
    """Defaults, what the entry assumed for attributes without one, and the flipped boolean of a variant."""
    proto = op_protos()[op_type]
    attrs = {a["name"]: a["default"] for a in proto["attrs"] if "default" in a}
    attrs |= op_protos()[op_type]["grad"]["all_slots"].get("assumed_attrs", {})
    attrs |= entry_of(op_type, key).get("assumed_attrs", {})
    if "=" in key:
        name, value = key.split("=")
        attrs[name] = value == "True"
    return attrs


def forward_op(op_type: str, key: str) -> OpView:
    """The op whose gradient the entry describes."""
    proto, required_only = op_protos()[op_type], key == "required_only"
    taken = {s["slot"] for s in proto["inputs"]}
    inputs = {s["slot"]: names(s, required_only, set()) for s in proto["inputs"]}
    outputs = {s["slot"]: names(s, required_only, taken) for s in proto["outputs"]}
    text = str(entry_of(op_type, key))
    for slot, bound in inputs.items():
        # The entry of reshape was made with a single ShapeTensor.
        if len(bound) == 2 and f"'{bound[0]}'" in text and f"'{bound[1]}'" not in text:
            inputs[slot] = bound[:1]
    return OpView(op_type, inputs, outputs, attributes(op_type, key))


def same(ours: Any, theirs: Any) -> bool:
    """Attribute equality; floats as float32."""
    if isinstance(theirs, float):
        return np.float32(ours) == np.float32(theirs)
    return ours == theirs


# Ops that ours has after Paddle's: the derivative of ``increment`` into another variable, which Paddle drops.
FURTHER = {"increment": ["assign"]}


@pytest.mark.parametrize(("op_type", "key"), variants(), ids=lambda v: v)
def test_gradient_ops(op_type, key):
    forward = forward_op(op_type, key)
    theirs = entry_of(op_type, key)["ops"]
    ours, _ = lowering.grad_ops(forward, set())
    further = FURTHER.get(op_type, [])
    assert [o.type for o in ours[len(theirs) :]] == further
    ours = ours[: len(theirs)]
    assert [o.type for o in ours] == [t["type"] for t in theirs]
    for o, t in zip(ours, theirs, strict=True):
        assert dict(sorted(o.inputs.items())) == t["inputs"]
        assert dict(sorted(o.outputs.items())) == t["outputs"]
        for name, value in t["attrs_changed"].items():
            assert same(o.attrs[name], value), f"attribute {name}"
        inherited = forward.attrs if t["attrs_inherited"] else {n: forward.attrs.get(n) for n in t["attrs_present"]}
        for name in set(inherited) - set(t["attrs_changed"]):
            assert o.attrs[name] == forward.attrs[name], f"attribute {name} is inherited"


@pytest.mark.parametrize("op_type", sorted(t for t in op_protos() if t in REGISTERED and t not in WITH_BLOCKS))
def test_differentiable_as_in_paddle(op_type):
    """An op has a gradient here exactly where it has one there."""
    theirs = bool(op_protos()[op_type].get("has_nonempty_grad_maker"))
    assert lowering.get_op(op_type).differentiable == theirs
