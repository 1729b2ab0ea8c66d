"""Dims that an op pairs: axes that lie there have the same size, wherever it comes from, and get one label and room.

A mask that is fed has the size of what a convolution leaves of other feeds. So their axes have different labels, and
different room. The op then runs on the smaller room, into which both fit if their sizes are equal: which somebody has
to check.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from lowering.engine.counts import SlotValues
from lowering.values import Array, Axis, Wide
from lowering.wide.shapes import whole

if TYPE_CHECKING:
    from lowering.wide.calls import Call

Dims = Mapping[str, Sequence[Hashable]]  # slot -> for each dim of its values a name, the same for paired ones, or None
Sized = tuple[Hashable, Array]  # a label, and the number of used positions
Same = Callable[[Sized, Sized], None]


def _elementwise(call: Call) -> Dims:
    x, y = (len(call.shape(slot)) for slot in ("X", "Y"))
    start = int(call.attr("axis"))
    start = start if start >= 0 else x - y
    return {"X": range(x), "Y": range(start, start + y)}


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
    **dict.fromkeys(["cross_entropy", "cross_entropy2", "sigmoid_cross_entropy_with_logits"], _alike("X", "Label")),
    "softmax_with_cross_entropy": _alike("Logits", "Label"),
    "huber_loss": _alike("X", "Y"),
    "log_loss": _alike("Predicted", "Labels"),
    "where": _alike("Condition", "X", "Y"),
    "concat": _concat,
    "matmul": _product("transpose_X", "transpose_Y"),
    "matmul_v2": _product("trans_x", "trans_y"),
    "bmm": _product("", ""),
}


def met(call: Call, same: Same) -> SlotValues:
    """The values of a call, cut to the smallest room of paired dims, whose label is that of the first value there.

    ``same`` is told what has to be equal.
    """
    dims = PAIRED[call.definition.type](call) if call.definition.type in PAIRED else {}
    first: dict[Hashable, tuple[Axis, Array]] = {}
    rooms: dict[Hashable, int] = {}
    for slot, names in dims.items():
        for name, axis, count in (found for v in call.each(slot) for found in _axes(v, names)):
            lead, number = first.setdefault(name, (axis, count))
            rooms[name] = min(axis.room, rooms.get(name, axis.room))
            if axis.label != lead.label:
                same((lead.label, number), (axis.label, count))
    values = dict(call.values)
    for slot, names in dims.items():
        value = values[slot]
        cut = [_cut(v, names, first, rooms) for v in (value if isinstance(value, list) else [value])]
        values[slot] = cut if isinstance(value, list) else cut[0]
    return values


def _axes(value: Any, names: Sequence[Hashable]) -> list[tuple[Hashable, Axis, Array]]:
    """(name of the dim, axis, number of used positions) of the axes that are named dims."""
    if not isinstance(value, Wide):
        return []
    found = zip(value.axes, value.counts, strict=True)
    at = [(names[axis.dim], axis, count) for axis, count in found if axis.dim < len(names) and whole(axis, value.shape)]
    return [one for one in at if one[0] is not None]


def _cut(value: Any, names: Sequence[Hashable], first: Mapping[Any, Any], rooms: Mapping[Any, int]) -> Any:
    for name, axis, _ in _axes(value, names):
        lead, count = first[name]
        if (axis.label, axis.room) != (lead.label, rooms[name]):
            at = value.axes.index(axis)
            data = jax.lax.slice_in_dim(value.data, 0, rooms[name], axis=axis.dim)
            axes, counts = list(value.axes), list(value.counts)
            axes[at], counts[at] = axis._replace(room=rooms[name], label=lead.label), count
            value = replace(value, data=data, counts=tuple(counts), axes=tuple(axes))
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
