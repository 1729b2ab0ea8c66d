"""Calling one op's rule on values: slots in, slots out, with LoD and padding rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lowering.dtypes import is_float
from lowering.engine.traces import Traces
from lowering.errors import NeedsExact, SlotError, UninitializedError
from lowering.program import EMPTY, GRAD, OpView, ProgramView
from lowering.registry import Masked, OpDef, Slot, Wise
from lowering.sizes.counts import SlotValues, plain
from lowering.values import (
    Form,
    LoDArray,
    Meta,
    RankTable,
    RowCounts,
    SelectedRows,
    StepScopes,
    TensorArray,
    Wide,
    data_of,
    fill_padding,
    is_concrete,
    is_padded,
)

# Larger values are not folded during tracing: they would be embedded in the executable.
FOLD_LIMIT = 64


def gather(definition: OpDef, op: OpView, lookup: Mapping[str, Any], program: ProgramView) -> SlotValues:
    """The values of an op's input slots; UninitializedError for a required variable without one."""
    found: SlotValues = {}
    for slot in definition.inputs:
        names = op.inputs.get(slot.name) or ()
        values = [None if n == EMPTY else lookup.get(n) for n in names]
        if op.computes_gradients and (definition.forward is None or slot.name in definition.gradient_slots):
            values = [_as_gradient(n, v, program) for n, v in zip(names, values, strict=True)]
        optional = slot.dispensable or definition.kind == "block" or slot.param in definition.absent
        optional = optional or (not names and slot.param in definition.spare)
        if not optional:
            _check_initialized(slot, names, values, op)
        if Form in map(type, values):
            _check_elements(slot, names, values, definition, op)
        if slot.duplicable:
            found[slot.name] = values
        else:
            found[slot.name] = values[0] if values else None
    return found


def _as_gradient(name: str, value: Any, program: ProgramView) -> Any:
    """A value read as a gradient that no backward op wrote, because it was given as ``target_gradients``.

    The padding rows of any other value are copies of a valid row; those of a gradient must be zero. Gradient slots
    read gradients, as does every slot of a plain op that a backward pass uses to move them.
    """
    if not isinstance(value, LoDArray) or not value.padded or name in program.gradients:
        return value
    return value.with_data(fill_padding(value.data, value.nrows, backward=True))


def _check_initialized(slot: Slot, names: Sequence[str], values: list[Any], op: OpView) -> None:
    if not names and not slot.duplicable:
        raise SlotError(
            f"{op.label} needs input {slot.name}, and no variable is bound to it; bind one where the op is appended"
        )
    for name, value in zip(names, values, strict=True):
        if value is None:
            reader = op.label
            raise UninitializedError(
                f"{reader} reads variable {name!r} through slot {slot.name}, but the variable is uninitialized:"
                " expected a value, found none. Feed it, run the startup program that initializes it, or set it in the"
                " scope first",
                name,
                reader,
                op.user_line().strip(),
            )


def _check_elements(slot: Slot, names: Sequence[str], values: list[Any], definition: OpDef, op: OpView) -> None:
    if slot.wants == "meta" or definition.kind == "block":
        return
    for name, value in zip(names, values, strict=True):
        if isinstance(value, Form):
            raise UninitializedError.shape_alone(f"op {op.type} (#{op.number})", name, value.shape)


def scatter(definition: OpDef, op: OpView, results: SlotValues) -> dict[str, Any]:
    """Results by variable name; a slot that the op does not bind is dropped."""
    named: dict[str, Any] = {}
    for slot in definition.outputs:
        names = op.outputs.get(slot.name) or ()
        value = results.get(slot.name)
        values = value if slot.duplicable and value is not None else [value]
        if slot.duplicable and value is not None and len(values) < len(names):
            raise SlotError(
                f"op {op.type} (#{op.number}) yields {len(values)} values for {slot.name}, but {len(names)} variables"
                f" {list(names)} are bound to it; bind as many as the op yields"
            )
        for name, single in zip(names, values, strict=False):
            if name != EMPTY and single is not None:
                named[name] = single
    for updated in definition.updates:
        named[op.inputs[updated][0]] = results[updated]
    return named


def call(
    definition: OpDef,
    values: SlotValues,
    attrs: Mapping[str, Any],
    special: Mapping[str, Any],
    traces: Traces | None = None,
) -> SlotValues:
    """Run the rule of a plain op on slot values; returns values by output slot. ``traces``: of equal calls."""
    padded = _padded(definition, values, attrs)
    args = [_argument(slot, values[slot.name], definition) for slot in definition.inputs]
    keywords = _attributes(definition, attrs)
    keywords.update({name: special[name] for name in definition.special})
    result = _evaluate(definition, args, keywords, traces)
    slots = [*(s.name for s in definition.outputs), *definition.updates]
    if len(slots) == 1:
        result = (result,)
    elif not isinstance(result, tuple):
        result = tuple(result)
    named = dict(zip(slots, result, strict=True))
    return _with_lod(definition, values, named, padded) | {slot: named[slot] for slot in definition.updates}


def _attributes(definition: OpDef, attrs: Mapping[str, Any]) -> dict[str, Any]:
    read = {}
    for spec in definition.attrs.values():
        if not spec.param:
            continue
        if spec.name in attrs:
            read[spec.param] = attrs[spec.name]
        elif spec.later and spec.later in attrs:
            read[spec.param] = attrs[spec.later]
        elif not spec.required:
            read[spec.param] = spec.default
        else:
            raise SlotError(f"op {definition.type} lacks its required attribute {spec.name!r}; set it on the op")
    return read


def _flat(values: SlotValues) -> list[Any]:
    return [v for value in values.values() for v in (value if isinstance(value, list) else [value]) if v is not None]


def _padded(definition: OpDef, values: SlotValues, attrs: Mapping[str, Any]) -> LoDArray | None:
    """The padded value whose rows the outputs follow, after checking that the op supports padding at all."""
    padded = [(s, v) for s in definition.inputs for v in _flat({s.name: values[s.name]}) if is_padded(v)]
    if not padded:
        return None
    rule = definition.rows_rule(attrs, padded[0][1].data.ndim)
    if rule is None and (definition.kind == "plain" or any(s.wants in ("array", "meta") for s, _ in padded)):
        raise NeedsExact(f"op {definition.type} is not declared for padded rows")
    if isinstance(rule, Wise):
        _check_aligned(definition, values, padded, rule.params(definition))
        return padded[0][1]
    if isinstance(rule, Masked):
        weights = rule.weights(definition)
        if any(slot.param in weights for slot, _ in padded):
            raise NeedsExact(f"op {definition.type} takes rows through its sequences alone")
    return None


def _check_aligned(
    definition: OpDef, values: SlotValues, padded: list[tuple[Slot, LoDArray]], carriers: Sequence[str]
) -> None:
    """Rows must never be paired silently with rows of another raggedness."""
    capacity = padded[0][1].capacity
    if any(v.capacity != capacity for _, v in padded):
        raise NeedsExact(f"op {definition.type} got values of unequal row capacity")
    if carriers and any(s.param not in carriers for s, _ in padded):
        raise NeedsExact(f"op {definition.type} takes rows through {carriers} alone")
    ndim = padded[0][1].data.ndim
    for slot in definition.inputs:
        if carriers and slot.param not in carriers:
            continue
        for value in _flat({slot.name: values[slot.name]}):
            data = data_of(value)
            if is_padded(value) or not hasattr(data, "ndim") or data.ndim != ndim:
                continue
            if data.shape[0] == capacity and capacity != 1:
                raise NeedsExact(f"op {definition.type} mixes padded and exact rows")


def _argument(slot: Slot, value: Any, definition: OpDef) -> Any:
    if slot.duplicable:
        return [_single(slot, v, definition) for v in value or []]
    return _single(slot, value, definition)


def _single(slot: Slot, value: Any, definition: OpDef) -> Any:
    if value is None or slot.wants == "sizes":
        return value
    value = plain(value)
    if slot.wants == "raw":
        return value
    if slot.wants == "meta":
        if isinstance(value, (TensorArray, Wide)):
            return value  # its elements have shapes, the array has none; its shape has axes with room
        if isinstance(value, SelectedRows):
            return Meta(value.shape, value.dtype)
        if isinstance(value, LoDArray):
            rows = (value.lod, value.nrows, value.nseq, value.longest, value.tight)
            return Meta(tuple(value.shape), value.dtype, *rows)
        return Meta(tuple(value.shape), value.dtype)
    if isinstance(value, (SelectedRows, TensorArray, RankTable, StepScopes)):
        raise SlotError(
            f"op {definition.type} expects a tensor in slot {slot.name}, received a {type(value).__name__};"
            " convert it first (get_tensor_from_selected_rows for sparse gradients, array_to_lod_tensor for arrays)"
        )
    if slot.wants == "lod":
        return value if isinstance(value, (LoDArray, Wide)) else LoDArray(value)
    data = data_of(value)
    if isinstance(data, np.ndarray) and is_float(data.dtype) and not definition.fold:
        return jnp.asarray(data)  # rules index and update what they read; known floats are not shapes or counts
    return data


def _evaluate(definition: OpDef, args: list[Any], keywords: dict[str, Any], traces: Traces | None) -> Any:
    if not definition.fold or not all(is_concrete(v) and v.size <= FOLD_LIMIT for v in jax.tree_util.tree_leaves(args)):
        return definition.fn(*args, **keywords) if traces is None else traces.evaluate(definition, args, keywords)
    # Results of constants stay known during tracing: shapes, array indices and trip counts depend on them. What NumPy
    # computes of them may be infinite or no number, as in a kernel, which does not warn.
    with jax.ensure_compile_time_eval(), np.errstate(all="ignore"):
        result = definition.fn(*args, **keywords)
        return jax.tree_util.tree_map(_to_host, result)


def _to_host(value: Any) -> Any:
    if isinstance(value, jax.Array) and not isinstance(value, jax.core.Tracer) and value.size <= FOLD_LIMIT:
        return np.asarray(value)
    return value


def _with_lod(definition: OpDef, values: SlotValues, results: SlotValues, padded: LoDArray | None) -> SlotValues:
    wrapped: SlotValues = {}
    carried = False
    for slot in definition.outputs:
        result = results[slot.name]
        source = values.get(definition.lod.get(slot.name, ""))
        rows = _rows_of(slot, values, padded)
        if isinstance(result, (list, tuple)):
            sources = [_lod_source(s) for s in _each(source, result)]
            each = zip(result, sources, _each(rows, result), strict=True)
            wrapped[slot.name] = [_wrap(r, s, p) for r, s, p in each]
        else:
            wrapped[slot.name] = _wrap(result, _lod_source(source), rows)
        carried |= any(isinstance(r, LoDArray) and r.padded for r in _flat({"": wrapped[slot.name]}))
    if padded is not None and definition.forward is None and not carried:
        raise NeedsExact(f"op {definition.type} did not keep the rows of its input")
    return wrapped


def _rows_of(slot: Slot, values: SlotValues, padded: LoDArray | None) -> Any:
    """The padded value whose rows an output has; for a gradient, its forward value if that is read."""
    base = values.get(slot.name[: -len(GRAD)]) if slot.name.endswith(GRAD) else None
    if padded is None or base is None:
        return padded
    if isinstance(base, list):
        return [v if is_padded(v) else None for v in base] if base else padded
    return base if is_padded(base) else None


def _each(rows: Any, results: Sequence[Any]) -> Sequence[Any]:
    """One per result: individual ones if the numbers match, otherwise the same for all."""
    return rows if isinstance(rows, list) and len(rows) == len(results) else [rows] * len(results)


def _lod_source(value: Any) -> LoDArray | None:
    """The value whose LoD is shared; if a slot has several, the first, even if only others have a LoD."""
    first = value[0] if isinstance(value, list) and value else value
    return first if isinstance(first, LoDArray) and first.lod else None


def _wrap(result: Any, source: LoDArray | None, padded: LoDArray | None) -> Any:
    if result is None or isinstance(result, (SelectedRows, TensorArray, RankTable, StepScopes, RowCounts, Wide)):
        return result
    if isinstance(result, LoDArray):
        return result if result.lod or result.padded else result.data
    about = (source.nseq, source.longest, source.tight) if source is not None else (None, (), False)
    lod = source.lod if source is not None else ()
    rows = result.shape[0] if np.ndim(result) else None
    if padded is not None and rows == padded.capacity:
        return LoDArray(result, lod, padded.nrows, *about)
    # Complete rows keep their LoD only if they are still one row each.
    if source is not None and not source.padded and rows == source.capacity:
        return LoDArray(result, lod, None, *about)
    return result
