"""Shape inference: ``jax.eval_shape`` of the op's own function, at two probe sizes for unknown dims."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import jax
import numpy as np

from lowering.dtypes import INT64, LOD_TENSOR, from_numpy, to_numpy
from lowering.engine.call import call
from lowering.engine.context import Context, in_place, special
from lowering.engine.interrupts import uninterrupted
from lowering.engine.kinds import indices
from lowering.engine.messages import doc_line
from lowering.engine.runner import Runner
from lowering.engine.single import SingleOp, static_attrs
from lowering.engine.x64 import in_x64
from lowering.errors import LoweringError, NeedsConcrete, NeedsExact, OpError, SizeError
from lowering.program import EMPTY, OpView, VarInfo, VarOf, VarView, forward_names
from lowering.registry import Check, OpDef, Slot, get_op, keeps_shape, level_from
from lowering.values import LoDArray

# Sizes used for an unknown dim; both have many divisors, and whatever differs between them is unknown.
PROBES = (5040, 10080)
_ROWS_PER_SEQUENCE = 420
_MOST_SIZES = 6  # how many known sizes are tried if the probes do not fit

_Signature = tuple[tuple[str, tuple[tuple[tuple[int, ...], int, int] | None, ...]], ...]


def infer_outputs(op: OpView, var_of: VarOf) -> dict[str, VarInfo]:
    """What is known of an op's outputs, by variable name; only what is to be set is included.

    Args:
        op: the op, its attributes already checked.
        var_of: variable name -> VarView or None.

    Raises:
        OpError: the op rejects the shapes of its inputs, all of which are known, or a known size is too small.
    """
    definition = get_op(op.type)
    try:
        if definition.insists is not None:
            insist(definition.insists, op, var_of)
        if definition.infer is not None:
            return dict(definition.infer(op, var_of))
    except LoweringError:
        raise
    except ValueError as error:
        raise OpError(_message(op, _signature(definition, op, var_of) or (), error)) from error
    if definition.forward is not None:
        return _like_forward(definition, op, var_of)
    return by_probing(definition, op, var_of) if definition.kind == "plain" else {}


def insist(check: Check, op: OpView, var_of: VarOf) -> None:
    """Raise Misfit if the declared inputs and attributes are not what the op takes; do nothing if one is unknown."""
    declared: list[Any] = []
    for slot in check.inputs:
        found = [var_of(n) for n in op.inputs.get(slot.name) or () if n != EMPTY]
        if None in found or not (found or slot.dispensable):
            return
        declared.append(found if slot.duplicable else next(iter(found), None))
    check.fn(*declared, **{a.param: op.attrs.get(a.name, a.default) for a in check.attrs})


def by_probing(definition: OpDef, op: OpView, var_of: VarOf) -> dict[str, VarInfo]:
    """The result of the op's own function on the probes.

    Raises:
        OpError: as ``infer_outputs``.
    """
    signature = _signature(definition, op, var_of)
    if signature is None or _only_updates(definition, op, signature):
        return {}
    outs = tuple(sorted((slot, len(names)) for slot, names in op.outputs.items()))
    declared = _declared(op, var_of) if "ctx" in definition.special else None
    try:
        found = _infer(op.type, static_attrs(op), signature, outs, declared)
    except Exception as error:
        if isinstance(error, LoweringError):
            raise
        raise OpError(_message(op, signature, error)) from error
    return {
        name: info._replace(dtype=None) if f"{slot}:dtype" in definition.undeclared else info
        for slot, names in op.outputs.items()
        for name, info in zip(names, found.get(slot, ()), strict=False)
        if name != EMPTY and info is not None and slot not in definition.undeclared
    }


def _declared(op: OpView, var_of: VarOf) -> tuple[tuple[str, VarView | None], ...]:
    return tuple((n, var_of(n)) for n in op.output_names())


def _like_forward(definition: OpDef, op: OpView, var_of: VarOf) -> dict[str, VarInfo]:
    """A gradient has the shape and dtype of the value it belongs to, and the LoD level that Fluid declares."""
    found = {}
    for slot, names in op.outputs.items():
        for place, name in enumerate(names):
            base = next((v for n in forward_names(name) if (v := var_of(n)) is not None), None)
            if base is not None and base.type == LOD_TENSOR:
                source = level_from(definition, slot, place, lambda slot: op.inputs.get(slot) or ())
                like = var_of(source) if source is not None else None
                level = like.lod_level if like is not None and like.type == LOD_TENSOR else 0
                kept = like if source is not None and keeps_shape(definition, slot) else None
                shape = base.shape if kept is None else kept.shape[1:]
                found[name] = VarInfo(tuple(shape), base.dtype, level)
    return found


def _signature(definition: OpDef, op: OpView, var_of: VarOf) -> _Signature | None:
    """Shapes, dtypes and LoD levels by slot; None if an input is undeclared or not a plain tensor."""
    parts, numbers = [], indices(op)
    for slot in definition.inputs:
        entries: list[tuple[tuple[int, ...], int, int] | None] = []
        for name in op.inputs.get(slot.name) or ():
            var = var_of(name)
            if var is None or var.type != LOD_TENSOR:
                return None
            dtype = INT64 if slot.name in numbers and to_numpy(var.dtype).kind == "f" else var.dtype
            entries.append((tuple(int(d) for d in var.shape), dtype, var.lod_level))
        if not entries and not slot.dispensable and not slot.duplicable and slot.param not in definition.spare:
            raise OpError(
                f"op {op.type}: input {slot.name} is required, and no variable is bound to it; expected inputs"
                f" {[s.name for s in definition.inputs]}, received {sorted(op.inputs)}; bind it"
            )
        parts.append((slot.name, tuple(entries)))
    return tuple(parts)


def _only_updates(definition: OpDef, op: OpView, signature: _Signature) -> bool:
    """Whether an optimizer op writes only what it reads, all of Param's dtype, and of its shape or a single number.

    Such an op tells nothing new, and tracing it for each parameter of a net would be a third of building it.
    """
    entries = dict(signature)
    param = (entries.get("Param") or (None,))[0]
    if param is None or entries.get("Grad") != (param,) or any(d < 0 for d in param[0]):
        return False
    one = ((1,), *param[1:])
    alike = all(e in (param, one) for listed in entries.values() for e in listed)
    return alike and in_place(definition, op) == {slot for slot, names in op.outputs.items() if names}


@lru_cache(maxsize=8192)
def _infer(type: str, attrs: Any, signature: _Signature, outs: Any, declared: Any) -> dict[str, tuple[Any, ...]]:
    definition = get_op(type)
    unknown = any(d < 0 for _, entries in signature for e in entries if e for d in e[0])
    results = []
    for probe in PROBES if unknown else PROBES[:1]:
        try:
            results.append(_evaluate(definition, attrs, signature, outs, declared, (probe, probe)))
        except (NeedsConcrete, NeedsExact):
            return {}
        except Exception as error:
            if unknown and not (isinstance(error, SizeError) and error.size not in PROBES):
                return _with_known_sizes(definition, attrs, signature, outs, declared)
            raise
    if len(results) == 1:
        results.append(results[0])
    return _merge(definition, signature, *results)


def _with_known_sizes(
    definition: OpDef, attrs: Any, signature: _Signature, outs: Any, declared: Any
) -> dict[str, tuple[Any, ...]]:
    """What is known if unknown dims must match known ones, like X [-1, 4] beside Y [3, 4].

    Sizes of other inputs are tried for the unknown dims (one for leading dims, one for the rest). A dim that
    is unknown in the first input remains unknown, as in Fluid.
    """
    entries = [e[0] for _, listed in signature for e in listed if e]
    known = sorted({d for shape in entries for d in shape if d > 1}, reverse=True)[:_MOST_SIZES]
    inner = any(d < 0 for shape in entries for d in shape[1:])
    for first in (*known, PROBES[0]):
        for rest in (*known, PROBES[0]) if inner else (first,):
            try:
                found = _evaluate(definition, attrs, signature, outs, declared, (first, rest))
            except Exception:  # these sizes do not fit either
                continue
            merged = _merge(definition, signature, found, found)
            return {
                slot: tuple(info and _blurred(info, entries[0], (first, rest)) for info in infos)
                for slot, infos in merged.items()
            }
    return {}


def _blurred(info: VarInfo, leading: tuple[int, ...], sizes: tuple[int, int]) -> VarInfo:
    def dim(axis: int, size: int) -> int:
        tried = size == sizes[min(axis, 1)]
        hidden = axis < len(leading) and leading[axis] < 0
        return -1 if size == PROBES[0] or (tried and hidden) else size

    return info if info.shape is None else info._replace(shape=tuple(map(dim, range(len(info.shape)), info.shape)))


@in_x64
def _evaluate(
    definition: OpDef, attrs: Any, signature: _Signature, outs: Any, declared: Any, sizes: tuple[int, int]
) -> Any:
    names = iter([n for n, _ in declared or ()])
    bound = {slot: [next(names, f"{slot}.{i}") for i in range(n)] for slot, n in outs}
    op = OpView(definition.type, {}, bound, dict(attrs))
    runner = Runner(SingleOp(dict(declared or ())))  # type: ignore[arg-type]

    def run(values: Any, key: Any) -> Any:
        return call(definition, values, op.attrs, special(definition, op, key, Context(op, runner, {})))

    values = {
        slot.name: _abstract(slot, entries, sizes)
        for slot, (_, entries) in zip(definition.inputs, signature, strict=True)
    }
    return uninterrupted(partial(jax.eval_shape, run, values, _abstract_key() if "key" in definition.special else None))


@lru_cache(maxsize=1)
def _abstract_key() -> Any:
    return jax.eval_shape(lambda: jax.random.key(0))


def _abstract(slot: Slot, entries: Any, sizes: tuple[int, int]) -> Any:
    values = [_abstract_value(e, sizes) for e in entries]
    if slot.duplicable:
        return values
    return values[0] if values else None


def _abstract_value(entry: tuple[tuple[int, ...], int, int], sizes: tuple[int, int]) -> Any:
    """``sizes``: those of unknown leading dims, and of other unknown dims."""
    shape, dtype, lod_level = entry
    array = jax.ShapeDtypeStruct(tuple(sizes[min(i, 1)] if d < 0 else d for i, d in enumerate(shape)), to_numpy(dtype))
    if not lod_level or not shape:
        return array
    count = max(sizes[0] // _ROWS_PER_SEQUENCE, 1)
    offsets = jax.ShapeDtypeStruct((count + 1,), np.int32)
    return LoDArray(array, (offsets,) * lod_level)


def _merge(definition: OpDef, signature: _Signature, first: Any, second: Any) -> dict[str, tuple[Any, ...]]:
    merged = {}
    levels = {name: next((e[2] for e in entries if e), 0) for name, entries in signature}
    for slot in definition.outputs:
        one, two = first.get(slot.name), second.get(slot.name)
        pairs = zip(one, two, strict=True) if isinstance(one, list) else [(one, two)]
        shared = levels.get(definition.lod.get(slot.name, ""), 0)
        merged[slot.name] = tuple(_merge_one(a, b, shared) for a, b in pairs)
    return merged


def _merge_one(one: Any, two: Any, shared_level: int) -> VarInfo | None:
    if one is None:
        return None
    level = len(one.lod) if isinstance(one, LoDArray) else 0
    if not hasattr(one, "shape") or not hasattr(one, "dtype"):
        return None
    shape = tuple(a if a == b else -1 for a, b in zip(one.shape, two.shape, strict=True))
    return VarInfo(shape, from_numpy(one.dtype), max(level, shared_level))


def _message(op: OpView, signature: _Signature, error: Exception) -> str:
    received = "; ".join(
        f"{slot} {', '.join(f'{list(e[0])} {to_numpy(e[1])}' for e in entries if e)}"
        for slot, entries in signature
        if entries
    )
    return (
        f"op {op.type}: its inputs do not fit together.\n  received: {received}\n"
        f"  problem: {str(error).strip() or type(error).__name__}\n"
        f"  to do: check shapes and attributes against {doc_line(op.type)}"
    )
