"""Checking a whole program before anything runs: report every unknown op and dtype at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from lowering.dtypes import LOD_TENSOR, LOD_TENSOR_ARRAY, SELECTED_ROWS, to_numpy
from lowering.engine.dataflow import MARKERS
from lowering.errors import UnknownOpError
from lowering.program import OpView, ProgramView
from lowering.registry import get_op, has_op
from lowering.registry.attributes import as_attribute
from lowering.registry.newer import VERSIONS, is_known, is_neutral, neutral_value
from lowering.registry.table import unknown_op_message
from lowering.registry.vendor import COMMON, fused

_TYPED = (LOD_TENSOR, SELECTED_ROWS, LOD_TENSOR_ARRAY)


def problems(program: ProgramView) -> list[str]:
    """One message per op or dtype of the program that the lowering does not know; empty if there is none.

    Attributes that an op does not have are ignored, as in Paddle; see ``unknown_attrs``.
    """
    found: list[str] = newer_problems(program) + fused_problems(program)
    for block in program.blocks:
        for op in block.ops:
            found += [f"{_place(op)}: {p}" for p in _op_problems(op)]
        written = {name for op in block.ops for name in op.output_names()}
        for var in block.vars.values():
            # Fluid's sampled_softmax declares the data type of a result by a variable type; its op determines its own.
            by_kind = var.dtype in _TYPED and var.name in written
            if var.type in _TYPED and not by_kind and not _known_dtype(var.dtype):
                found.append(f"variable {var.name!r} of block {block.idx}: data type {var.dtype} is unknown")
    return found


def validate(program: ProgramView) -> None:
    """Raise UnknownOpError listing all ``problems`` of the program, if there are any."""
    found = problems(program)
    if found:
        listing = "\n  - ".join(found)
        raise UnknownOpError(
            f"the program cannot run: {len(found)} of its parts are unknown.\n  - {listing}\n"
            "  to do: register the missing ops (CONTRIBUTING: how to add an op), or export the model without them"
        )


def unknown_attrs(type: str, names: Iterable[str], *, newer: bool) -> list[str]:
    """The attributes that an op does not have; a grad op inherits those given to its forward op.

    ``newer``: the program is Paddle 2's, whose additional hints are known.
    """
    if not has_op(type) or get_op(type).forward is not None:
        return []
    known = get_op(type).attrs
    later = {spec.later for spec in known.values()}
    return [
        n for n in names if n not in known and n not in COMMON and n not in later and not (newer and is_known(type, n))
    ]


def newer_problems(program: ProgramView) -> list[str]:
    """What a program of Paddle 2 asks of registered ops that they do not support; nothing for other programs."""
    if not program.newer:
        return []
    used = {op.type for block in program.blocks for op in block.ops}
    versions = ((t, v, VERSIONS.get(t, 0)) for t, v in sorted(program.op_versions.items()) if t in used)
    found = [f"op {t}: version {got}, and the last one known is {known}" for t, got, known in versions if got > known]
    ops = (op for block in program.blocks for op in block.ops if op.type not in MARKERS and has_op(op.type))
    return found + [f"{_place(op)}: {problem}" for op in ops if not op.is_backward for problem in _demands(op)]


def fused_problems(program: ProgramView) -> list[str]:
    """What oneDNN's kernels compute with registered ops, and nothing here does; see ``fused``."""
    ops = [op for block in program.blocks for op in block.ops if op.attrs.get("use_mkldnn") and has_op(op.type)]
    known = {op.type: {name for name, spec in get_op(op.type).attrs.items() if spec.param} for op in ops}
    return [
        f"{_place(op)}: {what}, which oneDNN's kernel adds to the op; save the model without mkldnn"
        for op in ops
        for what in fused(op, known[op.type])
    ]


def _demands(op: OpView) -> Iterator[str]:
    """Inputs that the op does not have, attributes that ask for more than it supports, and those of another type."""
    definition = get_op(op.type)
    for slot, names in op.inputs.items():
        if names and definition.input(slot) is None and definition.kind != "block":
            yield f"it reads {list(names)} through an input {slot}, which is not built"
    for name, value in op.attrs.items():
        spec = definition.attrs.get(name)
        if spec is None and not is_neutral(op.type, name, value):
            yield f"attribute {name} is {value!r}, and nothing is built but {neutral_value(op.type, name)!r}"
        elif spec is not None and spec.param and not _fits(spec.type, value):
            yield f"attribute {name} is {value!r}, expected {spec.type}"


def _fits(kind: str, value: Any) -> bool:
    """Whether an attribute's value is of the type; text may stand for a number."""
    try:
        as_attribute(kind, float(value) if kind == "FLOAT" and isinstance(value, str) else value, _misfit)
    except (_Misfit, ValueError, OverflowError):
        return False
    return True


class _Misfit(Exception):
    """A value that has none of the types that the attribute accepts."""


def _misfit(value: Any) -> _Misfit:
    return _Misfit(value)


def _place(op: OpView) -> str:
    line = op.user_line()
    built = f" (built at: {line.strip()})" if line else ""
    return op.label + built


def _op_problems(op: OpView) -> list[str]:
    if op.type in MARKERS:
        return []
    return [] if has_op(op.type) else [unknown_op_message(op.type)]


def _known_dtype(number: int) -> bool:
    try:
        to_numpy(number)
    except ValueError:
        return False
    return True
