"""Dims that an op pairs: axes that lie there have the same size, wherever it comes from, and get one label and room.

A mask that is fed has the size of what a convolution leaves of other feeds. So their axes have different labels, and
different room. The op then runs on the smaller room, into which both fit if their sizes are equal: which somebody has
to check. Where one of them has a known size, all of what is left is used.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lowering.program import GRAD
from lowering.sizes.counts import SlotValues
from lowering.sizes.labels import Sized
from lowering.values import Axis, Wide
from lowering.wide.given import whole
from lowering.wide.joined import Packed

if TYPE_CHECKING:
    from lowering.wide.call import Call, Packs

Dims = Mapping[str, Sequence[Hashable]]  # slot -> for each dim of its values a name, the same for paired ones, or None
Same = Callable[[Sized, Sized], None]


class _Place(NamedTuple):
    """A dim of a value, and the axis that it consists of, if any."""

    dim: int
    size: int
    axis: Axis | None
    number: Sized


def first_dims(call: Call) -> dict[str, int]:
    """The dims of the result of an elementwise op where those of X and Y begin."""
    x, y = (len(call.shape(slot)) for slot in ("X", "Y"))
    start = int(call.attr("axis"))
    start = start if start >= 0 else abs(x - y)
    return {"X": start, "Y": 0} if x < y else {"X": 0, "Y": start}


def _elementwise(call: Call) -> Dims:
    return {slot: range(first, first + len(call.shape(slot))) for slot, first in first_dims(call).items()}


def _alike(*slots: str) -> Callable[[Call], Dims]:
    return lambda call: {slot: range(max(len(v.shape) for v in call.each(slot))) for slot in slots if call.each(slot)}


def _concat(call: Call) -> Dims:
    rank = len(call.each("X")[0].shape)
    return {"X": [None if dim == int(call.attr("axis")) % rank else dim for dim in range(rank)]}


def _product(turned_x: str, turned_y: str) -> Callable[[Call], Dims]:
    def dims(call: Call) -> Dims:
        found = {}
        for slot, last, turned in (("X", ["m", "k"], turned_x), ("Y", ["k", "n"], turned_y)):
            rank = len(call.shape(slot))
            last = last[::-1] if turned and call.attr(turned) else last
            found[slot] = [*range(2 - rank, 0), *last] if rank > 1 else [None]
        return found

    return dims


ELEMENTWISE = frozenset(
    [f"elementwise_{name}" for name in "add sub mul div max min pow mod floordiv".split()]
    + "equal not_equal less_than less_equal greater_than greater_equal".split()
)
PAIRED: dict[str, Callable[[Call], Dims]] = {
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    **dict.fromkeys(["sum", "stack"], _alike("X")),
    **dict.fromkeys("logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor".split(), _alike("X", "Y")),
    **dict.fromkeys(
        "cross_entropy cross_entropy2 sigmoid_cross_entropy_with_logits sigmoid_focal_loss".split(),
        _alike("X", "Label"),
    ),
    "softmax_with_cross_entropy": _alike("Logits", "Softmax", "Label", "Loss" + GRAD),
    "huber_loss": _alike("X", "Y"),
    "log_loss": _alike("Predicted", "Labels"),
    "where": _alike("Condition", "X", "Y"),
    "concat": _concat,
    "matmul": _product("transpose_X", "transpose_Y"),
    "matmul_v2": _product("trans_x", "trans_y"),
    "bmm": _product("", ""),
}


# Ops that put the places of a dim in order or number them: the slot, and the dim.
NUMBERED: dict[str, tuple[str, Callable[[Call], int]]] = {
    "top_k": ("X", lambda call: -1),
    **dict.fromkeys(["top_k_v2", "argsort", "arg_max", "arg_min"], ("X", lambda call: int(call.attr("axis")))),
}


def packed(call: Call) -> Packs:
    """What has to be packed: a dim that consists of several axes, or of parts, is paired with one of another form, or
    its places are numbered.
    """
    if call.definition.type in NUMBERED:
        slot, axis = NUMBERED[call.definition.type]
        (value,) = call.each(slot)
        return _apart((slot, 0), value, axis(call) % len(value.shape))
    dims = PAIRED[call.definition.type](call) if call.definition.type in PAIRED else {}
    paired: dict[Hashable, list[tuple[tuple[str, int], Any, int]]] = {}
    for slot, names in dims.items():
        for i, value in enumerate(call.listed(slot)):
            for dim, name in enumerate(names[: len(value.shape)] if value is not None else ()):
                if name is not None and (value.shape[dim] > 1 or _along(value, dim)):
                    paired.setdefault(name, []).append(((slot, i), value, dim))
    found: Packs = {}
    for places in paired.values():
        forms = {(v.shape[dim], tuple(a._replace(dim=0) for a in _along(v, dim))) for _, v, dim in places}
        for key, value, dim in places if len(forms) > 1 else ():
            found |= _apart(key, value, dim)
    return found


def _apart(key: tuple[str, int], value: Any, dim: int) -> Packs:
    """How the used places of a dim come together that have unused ones between them."""
    axes = _along(value, dim)
    between = axes and not all(whole(axis, value.shape) for axis in axes)
    return {key: Packed.of(dim, [(value.shape[dim], axes)], unit=1)} if between else {}


def _along(value: Any, dim: int) -> list[Axis]:
    return [axis for axis in value.axes if axis.dim == dim] if isinstance(value, Wide) else []


def with_packed(values: SlotValues, packs: Packs) -> SlotValues:
    """The values with those packed that have to be."""
    found = dict(values)
    for (slot, i), pack in packs.items():
        value = found.get(slot)
        if isinstance(value, list):
            found[slot] = [pack.packed(v) if at == i else v for at, v in enumerate(value)]
        elif value is not None:
            found[slot] = pack.packed(value)
    return found


def met(call: Call, same: Same) -> SlotValues:
    """The values of a call, cut to the smallest room of paired dims, whose label is that of the first value there.

    ``same`` is told what has to be equal.
    """
    dims = PAIRED[call.definition.type](call) if call.definition.type in PAIRED else {}
    paired: dict[Hashable, list[_Place]] = {}
    for slot, names in dims.items():
        for name, place in (one for v in call.each(slot) for one in _places(v, names)):
            paired.setdefault(name, []).append(place)
    found = {name: _lead(places, same) for name, places in paired.items()}
    leads = {name: lead for name, lead in found.items() if lead is not None}
    values = dict(call.values)
    for slot, names in dims.items():
        value = values[slot]
        cut = [_cut(v, names, leads) for v in (value if isinstance(value, list) else [value])]
        values[slot] = cut if isinstance(value, list) else cut[0]
    return values


def _places(value: Any, names: Sequence[Hashable]) -> Iterator[tuple[Hashable, _Place]]:
    """The named dims of a value that are not one place, nor merged ones."""
    axes = list(zip(value.axes, value.counts, strict=True)) if isinstance(value, Wide) else []
    for dim, (name, size) in enumerate(zip(names, value.shape, strict=False)):
        along = [(axis, count) for axis, count in axes if axis.dim == dim]
        if name is None or (size == 1 and not along) or not all(whole(axis, value.shape) for axis, _ in along):
            continue
        for axis, count in along:
            yield name, _Place(dim, size, axis, (axis.label, count))
        if not along:
            yield name, _Place(dim, size, None, (None, np.int32(size)))


def _lead(places: Sequence[_Place], same: Same) -> _Place | None:
    """What all of these dims, which are paired, become; None if they are alike, or cannot be."""
    lead = next((place for place in places if place.axis is None), places[0])
    room = min(place.size for place in places)
    if len({(place.size, place.axis and place.axis.label) for place in places}) == 1 or not any(p.axis for p in places):
        return None
    if lead.axis is None and lead.size > room:
        return None
    for place in places:
        if place.number[0] != lead.number[0]:
            same(lead.number, place.number)
    return lead._replace(size=room)


def _cut(value: Any, names: Sequence[Hashable], leads: Mapping[Hashable, _Place]) -> Any:
    for name, place in list(_places(value, names)) if isinstance(value, Wide) else []:
        lead, axis = leads.get(name), place.axis
        if lead is None or axis is None:
            continue
        found = dict(zip(value.axes, value.counts, strict=True))
        del found[axis]
        if lead.axis is not None:
            found[axis._replace(room=lead.size, label=lead.number[0])] = lead.number[1]
        data = jax.lax.slice_in_dim(value.data, 0, lead.size, axis=axis.dim)
        axes = sorted(found, key=lambda axis: (axis.dim, -axis.inner))
        if not axes:
            return data
        value = Wide(data, tuple(found[axis] for axis in axes), tuple(axes))
    return value


def grown_back(gradient: Any, forward: Wide) -> Any:
    """The gradient of what was cut, with the room of its forward value; zero in what is added."""
    if isinstance(gradient, Wide) or len(gradient.shape) != len(forward.shape):
        return gradient
    missing = [to - now for to, now in zip(forward.shape, gradient.shape, strict=True)]
    roomy = {axis.dim for axis in forward.axes if whole(axis, forward.shape)}
    if not any(missing) or any(n < 0 or (n and dim not in roomy) for dim, n in enumerate(missing)):
        return gradient
    return jnp.pad(gradient, [(0, n) for n in missing])
