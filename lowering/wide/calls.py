"""An op on values with spare room: what its inputs hold there, and what becomes of its results."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lowering.draws.random_bits import Placed
from lowering.errors import Need, NeedsExact, NeedsSizes
from lowering.program import EMPTY, GRAD, OpView, forward_name
from lowering.registry import OpDef
from lowering.sizes.counts import SlotValues, each, flat
from lowering.sizes.labels import count_of, roots
from lowering.sizes.moves import mask, refilled, turned, used_places
from lowering.values import Array, Axis, LoDArray, RowCounts, SelectedRows, Wide, data_of, is_padded
from lowering.wide.call import Call, Refusing, Told, refused
from lowering.wide.joined import Packed
from lowering.wide.meet import grown_back, met, packed, with_packed
from lowering.wide.rules import GATHERING, RULES
from lowering.wide.sizes import SIZES
from lowering.wide.windows import BESIDE_ROWS

Run = Callable[[SlotValues], SlotValues]


def bare(value: Any) -> Any:
    """The array of a wide value; anything else unchanged."""
    return value.data if isinstance(value, Wide) else value


def run_wide(
    definition: OpDef,
    op: OpView,
    values: SlotValues,
    run: Run,
    env: Mapping[str, Any],
    told: Told | None = None,
) -> SlotValues:
    """The results of an op with some wide values.

    ``told`` hears of what the sizes have to be; without it, an op for which they have to be anything is refused.

    Raises NeedsSizes if the op cannot take them.
    """
    try:
        hearer: Told = told or Refusing(op, values, {})
        if definition.forward is None:
            return _forward(definition, op, values, run, hearer)
        return _backward(definition, op, values, run, env, hearer)
    except NeedsExact as needed:
        if any(map(is_padded, flat(values))):
            raise
        raise refused(op, flat(values), f"needs true sizes: {needed}") from needed  # no rows could become exact
    except Need:
        raise
    except Exception as error:  # a mismatch may be due to the spare room alone
        raise refused(op, flat(values), f"failed on more room than it needs: {error}") from error


def _forward(definition: OpDef, op: OpView, values: SlotValues, run: Run, told: Told) -> SlotValues:
    if op.type in SIZES:
        return SIZES[op.type](values)
    call = _called(definition, op, values)
    packs, place = packed(call), (op.block_idx, op.index)
    noted = [told.packs[name] for name in op.output_names() if name in told.packs]
    if any(at != place and other != packs for at, other in noted):  # a gradient could not tell which of them it is of
        raise refused(op, flat(values), "writes again what was packed for another op")
    if packs:
        told.packs.update(dict.fromkeys(op.output_names(), (place, packs)))
        call.values = with_packed(values, packs)
    call.values = values = met(call, told.same)
    axes = RULES[op.type](call)
    if axes is None:
        raise refused(op, flat(values), "does not leave the places of its inputs alone")
    counts = _counts(values)
    for label in call.least:
        told.some(label, count_of(label, counts))
    for pair in call.alike:
        told.same(*pair)
    results = run(_filled(call, values, counts))
    wrapped = {}
    for slot, result in results.items():
        of_slot = axes.get(slot, () if slot == "XShape" else axes.get("*", ()))
        wrapped[slot] = _each(result, of_slot, counts)
    return _finished(call, wrapped, counts)


def _backward(
    definition: OpDef, op: OpView, values: SlotValues, run: Run, env: Mapping[str, Any], told: Told
) -> SlotValues:
    """A gradient op is linear in the gradients it reads, which are zero at unused positions; so are its results."""
    forward = definition.forward
    assert forward is not None
    call = _called(forward, op, values)
    made = {slot.name for slot in forward.outputs}
    written = (n for slot, names in op.inputs.items() if slot.removesuffix(GRAD) in made for n in names)
    packs = next((told.packs[n][1] for n in map(forward_name, written) if n in told.packs), {})
    call.values = with_packed(values, packs)
    call.values = values = met(call, lambda *_: None)  # as in the forward op
    if forward.type in GATHERING and RULES[forward.type](call) is None:
        raise refused(op, flat(values), "does not leave the places of its inputs alone")
    counts = _counts(values)
    given = _filled(call, values, counts)
    for slot in definition.gradient_slots & given.keys():
        _check_gradients(op, slot, values, env)
        given[slot] = _changed(given[slot], values[slot], lambda v, of: _zeroed(v, of, counts))
        if call.joined:
            given[slot] = call.joined.parted(given[slot], counts)
    results, call.joined = run(given), None
    for slot, axis in call.ended.items():
        results = {**results, slot + GRAD: turned(results[slot + GRAD], axis, counts[axis.label])}
    for (slot, axis), by in call.shifted.items():
        if results.get(slot + GRAD) is not None:
            results = {**results, slot + GRAD: turned(results[slot + GRAD], axis, axis.room - by(counts))}
    wrapped = {}
    for slot, result in results.items():
        names = op.outputs.get(slot) or ()
        found = [_forward_value(values, env, n) for n in names]
        many = result if isinstance(result, list) else [result]
        if op.block_idx and any(r is not None and f is None for r, f in zip(many, found, strict=False)):
            raise refused(op, flat(values), "has a gradient of what is not known there")
        own = [packs.get((slot.removesuffix(GRAD), i)) for i in range(len(found))]
        placed = [_spread(*of) for of in zip(many, found, own, strict=False)]
        like = [_like(r, f, counts, op, values) for r, f in zip(placed, found, strict=False)]
        wrapped[slot] = like if isinstance(result, list) else (like or [result])[0]
    return _finished(call, wrapped, counts)


def _called(forward: OpDef, op: OpView, values: SlotValues) -> Call:
    if forward.type not in RULES or forward.forward is not None:
        raise refused(op, flat(values), "is not known to leave room alone")
    beside = forward.type.startswith("sequence_") or forward.type in BESIDE_ROWS
    if any(is_padded(v) for v in flat(values)) and not beside:
        raise refused(op, flat(values), "reads padded rows beside")
    if any(isinstance(v, SelectedRows) for v in flat(values)):
        raise refused(op, flat(values), "reads selected rows beside")
    return Call(op, forward, values)


def _counts(values: SlotValues) -> dict[Any, Array]:
    """The numbers of used positions by label, of axes and of what follows their sizes."""
    every = list(flat(values))
    told = {c.label: n for v in every if isinstance(v, RowCounts) for c, n in zip(v.counted, v.numbers, strict=True)}
    wide = [v for v in every if isinstance(v, Wide)]
    return told | {axis.label: count for v in wide for axis, count in zip(v.axes, v.counts, strict=True)}


def _each(result: Any, axes: Sequence[Axis], counts: Mapping[Any, Array]) -> Any:
    if isinstance(result, (list, tuple)):
        return [_each(r, axes, counts) for r in result]
    return widened(result, axes, counts)


def widened(result: Any, axes: Sequence[Axis], counts: Mapping[Any, Array]) -> Any:
    """``result`` with these axes; ValueError if it does not have them."""
    if result is None or not axes:
        return result
    if isinstance(result, LoDArray):
        raise ValueError("its result has rows of its own")
    for axis in axes:
        if result.shape[axis.dim] % (axis.room * axis.inner):
            raise ValueError(f"its result {list(result.shape)} has no axis {axis}")
    axes = tuple(sorted(axes, key=lambda axis: (axis.dim, -axis.inner)))
    return Wide(result, tuple(count_of(axis.label, counts) for axis in axes), axes)


def _forward_value(values: SlotValues, env: Mapping[str, Any], name: str) -> Any:
    """What a gradient is like: the form that XShape tells, as the variable itself may have been overwritten."""
    shape = values.get("XShape")
    if name == EMPTY:
        return None
    if not isinstance(shape, Wide) or shape.shape[0]:  # of cross_entropy2, the last dim is nothing
        return env.get(forward_name(name))
    axes = tuple(axis._replace(dim=axis.dim - 1) for axis in shape.axes)
    return Wide(jax.ShapeDtypeStruct(shape.shape[1:], shape.dtype), shape.counts, axes)


def _spread(result: Any, forward: Any, pack: Packed | None) -> Any:
    """The gradient of what was packed, with the places of its forward variable."""
    return result if pack is None or result is None else pack.unpacked(result, forward)


def _like(result: Any, forward: Any, counts: Mapping[Any, Array], op: OpView, values: SlotValues) -> Any:
    """A gradient with the axes of its forward variable."""
    if result is None or not isinstance(forward, Wide):
        return result
    result = grown_back(result, forward)
    if isinstance(result, Wide) or tuple(result.shape) != tuple(forward.shape):
        raise refused(op, [forward, *flat(values)], "has a gradient of another shape")
    known = {axis.label: count for axis, count in zip(forward.axes, forward.counts, strict=True)}
    return widened(result, forward.axes, {**known, **counts})


def _check_gradients(op: OpView, slot: str, values: SlotValues, env: Mapping[str, Any]) -> None:
    """A gradient has the axes of its forward variable."""
    given = values[slot] if isinstance(values[slot], list) else [values[slot]]
    for name, gradient in zip(op.inputs.get(slot) or (), given, strict=False):
        forward = env.get(forward_name(name))
        axes = [v.axes if isinstance(v, Wide) else () for v in (gradient, forward)]
        if gradient is None or forward is None or axes[0] == axes[1]:
            continue
        if not axes[0] or tuple(gradient.shape) == tuple(forward.shape):  # else it was overwritten by what it became
            raise refused(op, [forward, *flat(values)], "reads a gradient of another shape")


def check_gradients_of_wide(op: OpView, results: Mapping[str, Any], env: Mapping[str, Any]) -> None:
    """Raise NeedsSizes if an op without wide inputs wrote the gradient of a wide variable."""
    for name, value in results.items():
        forward = env.get(forward_name(name)) if GRAD in name else None
        if isinstance(forward, Wide) and not isinstance(value, Wide):
            raise refused(op, [forward], "writes a gradient without its shape")


def _filled(call: Call, values: SlotValues, counts: Mapping[Any, Array]) -> SlotValues:
    """Bare arrays, with the op's neutral element at unused positions."""
    given = {slot: value if slot in call.kept else each({slot: value}, bare)[slot] for slot, value in values.items()}
    for slot, change in call.moved.items():
        given[slot] = change(given[slot], counts)
    for slot, axis in call.ended.items():
        given[slot] = turned(given[slot], axis, axis.room - counts[axis.label])
    for (slot, axis), fill in call.fills.items():
        given[slot] = _changed(given[slot], values[slot], partial(_where, axis=axis, fill=fill, counts=counts))
    for (slot, axis), by in call.shifted.items():
        given[slot] = turned(given[slot], axis, by(counts))
    return given


def _changed(given: Any, values: Any, change: Callable[[Any, Any], Any]) -> Any:
    if isinstance(values, list):
        return [change(g, v) for g, v in zip(given, values, strict=True)]
    return change(given, values)


def _where(data: Any, value: Any, axis: Axis, fill: Any, counts: Mapping[Any, Array]) -> Any:
    if not isinstance(value, Wide) or axis not in value.axes:
        return data
    if isinstance(data, Wide):  # the op gets it with its axes
        return replace(data, data=_where(data.data, value, axis, fill, counts))
    return jnp.where(mask(data.shape, axis, counts[axis.label]), data, jnp.asarray(fill, data.dtype))


def _zeroed(data: Any, value: Any, counts: Mapping[Any, Array]) -> Any:
    for axis in value.axes if isinstance(value, Wide) else ():
        data = _where(data, value, axis, 0, counts)
    return data


def ended(value: Any) -> Any:
    """A wide value as an array that ends in zeros along its axes; anything else unchanged."""
    if not isinstance(value, Wide):
        return value
    return _zeroed(value.data, value, {a.label: count for a, count in zip(value.axes, value.counts, strict=True)})


def check_left(scattered: Collection[Any], state: Iterable[Any], outputs: Iterable[Any]) -> None:
    """Raise NeedsSizes if a step would leave wide state, or selected rows with meaningless entries."""
    wide = set(roots(axis.label for value in state if isinstance(value, Wide) for axis in value.axes))
    if scattered and any(isinstance(v, SelectedRows) for v in (*state, *outputs)):
        wide |= set(scattered)
    if wide:
        needed = NeedsSizes("a variable of the scope has the true size")
        needed.labels = frozenset(wide)
        raise needed


def placed(op: OpView, key: Any, values: Collection[Any]) -> Any:
    """A key that draws, for each element of the widest value, what it draws for it without spare room.

    Raises NeedsSizes if there are too many of them to have numbers.
    """
    value = max((v for v in values if isinstance(v, Wide)), key=lambda v: v.data.size)
    if value.data.size >= 1 << 32:
        raise refused(op, values, "draws for more elements than have numbers")
    return Placed(key, used_places(value))


def _finished(call: Call, results: SlotValues, counts: Mapping[Any, Array]) -> SlotValues:
    if call.share:
        results = each(results, lambda v: _shared(v, call.share, counts))
    if call.joined:
        results = each(results, partial(call.joined.closed_up, counts=counts))
    return each(results, refilled) if call.refilled else results


def _shared(value: Any, axes: Sequence[Axis], counts: Mapping[Any, Array]) -> Any:
    """Turn a mean over all positions into one over the used ones; the others held zeros."""
    if value is None:
        return value
    data = data_of(value)
    for axis in axes:
        count = jnp.maximum(counts[axis.label], 1)
        data = data * (np.asarray(axis.room, data.dtype) / count.astype(data.dtype))
    return replace(value, data=data) if isinstance(value, Wide) else data
