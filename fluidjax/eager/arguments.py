"""The arguments of eager ops: the values of variables, and errors for unsuitable ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fluidjax.base.errors import EnforceNotMet, explain
from fluidjax.base.tracebacks import shorten
from fluidjax.eager.kernels import Kernel
from fluidjax.eager.slots import flatten
from fluidjax.eager.values import Value
from fluidjax.eager.variables.varbase import VarBase
from fluidjax.framework.operator import tell_left_out
from lowering import OpDef
from lowering.dtypes import to_numpy
from lowering.engine.shapes.validate import unknown_attrs
from lowering.errors import plain
from lowering.program import BOOKKEEPING


def without_absent(definition: OpDef, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs of an op, without variables that are allowed to have no value and have none."""
    absent = {slot.name for slot in definition.inputs if slot.param in definition.absent}
    return {
        slot: v for slot, v in inputs.items() if slot not in absent or all(x._value is not None for x in _listed(v))
    }


def known_attrs(definition: OpDef, attrs: Mapping[str, Any]) -> Mapping[str, Any]:
    """The attributes without those that the op does not have, which are reported in a warning."""
    given = [name for name, value in attrs.items() if value is not None and name not in BOOKKEEPING]
    unknown = unknown_attrs(definition.type, given, newer=False)
    tell_left_out(definition.type, "attribute", unknown, definition.attrs)
    return {name: value for name, value in attrs.items() if name not in unknown} if unknown else attrs


def known_slots(
    definition: OpDef, inputs: Mapping[str, Any], outputs: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """(inputs, outputs) without the slots that the op does not have; None if it has all of them."""
    held: list[dict[str, Any]] = []
    for kind, given, slots in (("input", inputs, definition.inputs), ("output", outputs, definition.outputs)):
        known = {slot.name for slot in slots}
        unknown = [name for name in given if name not in known and given[name] is not None]
        tell_left_out(definition.type, f"{kind} slot", unknown, known)
        held.append({name: argument for name, argument in given.items() if name in known})
    return None if len(held[0]) == len(inputs) and len(held[1]) == len(outputs) else (held[0], held[1])


def first(inputs: Mapping[str, Any]) -> VarBase:
    """The first variable of the first slot that has one."""
    return next(v for v in flatten(inputs)[0])


def _listed(argument: Any) -> Sequence[VarBase]:
    return argument if isinstance(argument, (list, tuple)) else [argument]


def values_of(type: str, ins: Sequence[Any]) -> list[Value]:
    """The values of variables. Raises TypeError for anything else, EnforceNotMet if there is no value."""
    try:
        values = [v._value for v in ins]
    except AttributeError:
        wrong = next(v for v in ins if not isinstance(v, VarBase))
        raise TypeError(
            explain(
                f"op {type} under fluid.dygraph.guard() was given {wrong!r:.80}",
                "variables of eager mode",
                f"a {wrong.__class__.__name__}",
                "make it one with fluid.dygraph.to_variable; a static program's Variables belong outside the guard",
            )
        ) from None
    if None in values:
        ins[values.index(None)]._array()  # reports the missing value
    return values


def failure(kernel: Kernel, ins: Sequence[Value], error: Exception) -> EnforceNotMet:
    """What to raise where an op's inputs do not fit: it says all that ``error``, of JAX, has to say."""
    received = ", ".join(f"{to_numpy(v.spec.dtype)}{list(v.spec.shape)}" for v in ins)
    told = EnforceNotMet(
        explain(
            f"op {kernel.type} failed on its inputs: {plain(error)}",
            kernel.definition.doc.splitlines()[0] if kernel.definition.doc else "inputs that fit together",
            received or "no inputs",
            "compare the shapes and dtypes with the op's documentation",
        )
    )
    try:
        raise told from error
    except EnforceNotMet:
        shorten(told)
    return told
