"""For ops that rearrange their input, which axes the results have: see ``rules``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

from lowering.program import GRAD
from lowering.sizes.counts import RowSize
from lowering.sizes.labels import grown, scaled
from lowering.sizes.moves import places_in_room
from lowering.values import Array, Axis, LoDArray
from lowering.wide.given import bounds, given, whole
from lowering.wide.joined import Between, Packed

if TYPE_CHECKING:
    from lowering.wide.call import Call

Found = Mapping[str, Sequence[Axis]] | None
Rule = Callable[["Call"], Found]


# From where on the end of a slice is that of its dim: ``x[1:]`` is written with a far end.
_FAR = 10_000_000


def of_xshape(axes: Sequence[Axis]) -> list[Axis]:
    """The axes of XShape, whose dims are 0 and those of X."""
    return [axis._replace(dim=axis.dim + 1) for axis in axes]


def off(slot: str, attr: str = "axis") -> Rule:
    """An op that works along one dim, other than these, and keeps them all."""

    def rule(call: Call) -> Found:
        along = int(call.attr(attr)) % len(call.shape(slot))
        off = call.only(slot) and all(axis.dim != along for axis in call.axes(slot))
        return {"*": call.axes(slot)} if off else None

    return rule


def off_last(call: Call) -> Found:
    """An op that works along the last dim, other than these, and keeps them all."""
    last = len(call.shape("X")) - 1
    return {"*": call.axes("X")} if call.only("X") and all(axis.dim != last for axis in call.axes("X")) else None


def _joined(call: Call) -> Found:
    """Side by side; or along axes that parts have spare room in, whose used positions then follow each other."""
    parts = call.each("X")
    along = int(call.attr("axis")) % len(parts[0].shape)
    axes = {tuple(a for a in getattr(v, "axes", ()) if a.dim != along) for v in parts}
    if len(axes) != 1 or call.each("AxisTensor"):
        return None
    lying = [[a for a in getattr(v, "axes", ()) if a.dim == along] for v in parts]
    return {"*": [*axes.pop(), *([_lengthened(call, along, lying)] if any(lying) else ())]}


def _lengthened(call: Call, along: int, lying: Sequence[Sequence[Axis]]) -> Axis:
    """The axis of several parts, of which some have axes along it."""
    sizes = [v.shape[along] for v in call.each("X")]
    at = next(i for i, axes in enumerate(lying) if axes)
    if sum(map(len, lying)) == 1 and whole(lying[at][0], call.each("X")[at].shape):
        axis, before, after = lying[at][0], sum(sizes[:at]), sum(sizes[at + 1 :])
        call.joined = Between(axis, before, after)
        return Axis(along, sum(sizes), grown(axis.label, before + after))
    call.joined = packed = Packed.of(along, list(zip(sizes, lying, strict=True)))
    return packed.axis


def _split(call: Call) -> Found:
    return None if call.each("AxisTensor") or call.each("SectionsTensorList") else off("X")(call)


def _stack(call: Call) -> Found:
    parts = call.each("X")
    if len({(getattr(v, "axes", ()), tuple(v.shape)) for v in parts}) != 1:
        return None
    at = int(call.attr("axis")) % (len(parts[0].shape) + 1)
    return {"*": [a._replace(dim=a.dim + (a.dim >= at)) for a in parts[0].axes]}


def _unstacked(call: Call) -> Found:
    """The parts along one dim, which each lack it."""
    along = int(call.attr("axis")) % len(call.shape("X"))
    if any(axis.dim == along for axis in call.axes("X")):
        return None
    return {"*": [axis._replace(dim=axis.dim - (axis.dim > along)) for axis in call.axes("X")]}


def _shuffled(call: Call) -> Found:
    """Channels spread over planes that are larger by a factor."""
    times, x = int(call.attr("upscale_factor")), call.shape("X")
    plain = call.op.attrs.get("data_format", "NCHW") == "NCHW"
    if not plain or any(axis.dim == 1 or (axis.dim > 1 and not whole(axis, x)) for axis in call.axes("X")):
        return None
    larger = lambda axis: axis._replace(room=axis.room * times, label=scaled(axis.label, times))  # noqa: E731
    return {"*": [larger(axis) if axis.dim > 1 else axis for axis in call.axes("X")]}


def _transpose(call: Call) -> Found:
    order = [int(d) % len(call.shape("X")) for d in call.attr("axis")]
    return {"*": [a._replace(dim=order.index(a.dim)) for a in call.axes("X")], "XShape": of_xshape(call.axes("X"))}


def _reshape(call: Call) -> Found:
    """A dim that contains all positions, and nothing else in between, keeps them all."""
    x, told = call.shape("X"), given(call, "ShapeTensor", "Shape", multiples=True)
    wanted = [int(n) for n in call.attr("shape")] if told is None else told.numbers
    if not call.only("X") or wanted is None or any(n == 0 and i >= len(x) for i, n in enumerate(wanted)):
        return None
    shape = [x[i] if n == 0 else int(n) for i, n in enumerate(wanted)]
    if -1 in shape:
        rest = -prod(shape)
        if not rest or prod(x) % rest:
            return None
        shape[shape.index(-1)] = prod(x) // rest
    if told is not None:
        told.fix(shape)
    sized = {i: n for i, n in enumerate(wanted) if isinstance(n, RowSize)}
    found = _relaid(call, x, shape, {i for i, n in enumerate(wanted) if n in (0, -1)} | sized.keys())
    same = found is not None and all(_keeps(n, i, found["*"]) for i, n in sized.items())
    return found if same else None


def _keeps(n: RowSize, dim: int, axes: Sequence[Axis]) -> bool:
    """Whether a dim of this size is that of the axes in it."""
    found = [axis for axis in axes if axis.dim == dim]
    return [(axis.label, axis.room * n.rate) for axis in found] == [(n.label, int(n))]


def _relaid(call: Call, x: Sequence[int], shape: Sequence[int], follows: set[int]) -> Found:
    """The axes of X in another shape, of which only the dims ``follows`` follow from X's."""
    if prod(x) != prod(shape):
        return None
    axes = []
    for axis in call.axes("X"):
        apart = axis.inner * prod(x[axis.dim + 1 :])
        strides = [prod(shape[d + 1 :]) for d in range(len(shape))]
        fitting = [d for d in follows if apart % strides[d] == 0 and shape[d] % (apart // strides[d] * axis.room) == 0]
        if not fitting:
            return None
        axes.append(axis._replace(dim=fitting[0], inner=apart // strides[fitting[0]]))
    return {"*": axes, "XShape": of_xshape(call.axes("X"))}


def _flatten(call: Call) -> Found:
    x, split = call.shape("X"), int(call.attr("axis"))
    return _relaid(call, x, (prod(x[:split]), prod(x[split:])), {0, 1})


def _flatten_range(call: Call) -> Found:
    x = call.shape("X")
    first, last = (int(call.attr(name)) % len(x) for name in ("start_axis", "stop_axis"))
    shape = (*x[:first], prod(x[first : last + 1]), *x[last + 1 :])
    return _relaid(call, x, shape, set(range(len(shape))))


def _squeeze(call: Call) -> Found:
    x = call.shape("X")
    named = {int(a) % len(x) for a in call.attr("axes")}
    if not named or any(axis.dim in named for axis in call.axes("X")):
        return None
    gone = {d for d in named if x[d] == 1}
    axes = [a._replace(dim=a.dim - sum(d < a.dim for d in gone)) for a in call.axes("X")]
    return {"*": axes, "XShape": of_xshape(call.axes("X"))}


def _unsqueeze(call: Call) -> Found:
    if call.each("AxesTensor") or call.each("AxesTensorList"):
        return None
    dims = list(range(len(call.shape("X"))))
    for at in call.attr("axes"):
        dims.insert(int(at) if at >= 0 else len(dims) + 1 + int(at), -1)
    return {"*": [a._replace(dim=dims.index(a.dim)) for a in call.axes("X")], "XShape": of_xshape(call.axes("X"))}


def _slice(call: Call) -> Found:
    """Along other axes; or the first or last positions, or all but some, of what has as many.

    What is cut to the size of a wide dim need not be wide itself.
    """
    if not call.axes("Input"):
        return {"*": ()}
    cut = bounds(call, _FAR)
    if cut is None or not call.only("Input", "Out" + GRAD):
        return None
    gone = set(call.attr("decrease_axis"))
    left = []
    for axis in call.axes("Input"):
        size = call.shape("Input")[axis.dim]
        start, end = cut.get(axis.dim, (0, size))
        end = _FAR if start == -1 and end == 0 and axis.dim in gone else end
        wise = whole(axis, call.shape("Input"))
        if wise and 0 <= start < end < size:
            has_at_least(call, axis, end)
            continue
        if wise and start < 0 and (start < end < 0 or end >= _FAR) and not call.ended:
            call.ended["Input"] = axis
            has_at_least(call, axis, -start)
            continue
        if wise and 0 <= start and (end < 0 or end >= _FAR) and (lost := start - min(end, 0)):
            axis = axis._replace(room=size - lost, label=grown(axis.label, -lost))
            call.least.append(axis.label)
        elif start != 0 or end < size:
            return None
        left.append(axis._replace(dim=axis.dim - sum(d < axis.dim for d in gone)))
    return {"*": left}


def has_at_least(call: Call, axis: Axis, number: int) -> None:
    """Let the op run wide only where so many positions are used; one always is."""
    if number > 1:
        call.least.append(grown(axis.label, 1 - number))


def _gather(call: Call) -> Found:
    """Rows of X, as many as Index has: their numbers, which count no unused ones, become those of X with its room.

    In the gradient, what Index has at unused positions would write over gradients of others: it is sent outside.
    """
    along = [*call.each("Axis"), *([] if call.attr("axis") == 0 else [call.attr("axis")])]
    index, rows = call.axes("Index"), call.shape("X")[0]
    if along or not call.only("X", "Index", "Out" + GRAD) or any(axis.dim != 0 for axis in index):
        return None
    padded = isinstance(call.each("Index")[0], LoDArray)
    if padded and any(axis.dim for axis in call.axes("X")):
        return None  # rows of which each has room, too
    _places_in(call, [[axis for axis in call.axes("X") if axis.dim == 0]])
    if call.op.type != "gather" and not padded:
        call.fills.update({("Index", axis): rows for axis in index})
    return {"*": [*index, *(axis for axis in call.axes("X") if axis.dim)]}


def _gather_nd(call: Call) -> Found:
    """The parts of Index, along its last dim, say places in the first dims of X."""
    index, parts, front = call.axes("Index"), call.shape("Index")[-1], len(call.shape("Index")) - 1
    if not call.only("X", "Index", "Out" + GRAD) or any(axis.dim == front for axis in index):
        return None
    _places_in(call, [[axis for axis in call.axes("X") if axis.dim == dim] for dim in range(parts)])
    left = [axis._replace(dim=axis.dim - parts + front) for axis in call.axes("X") if axis.dim >= parts]
    return {"*": [*index, *left]}


def _places_in(call: Call, axes: Sequence[Sequence[Axis]]) -> None:
    """Let the parts of Index, which count used positions, say where these are along the axes of each part."""
    x = call.shape("X")
    merged = [[a for a in part if not whole(a, x)] for part in axes]
    if any(merged):
        call.moved["Index"] = partial(_of_rows, partial(places_in_room, merged))


def _of_rows(change: Callable[[Array, Mapping[Any, Array]], Array], value: Any, counts: Mapping[Any, Array]) -> Any:
    """The change of an array, made to rows as well."""
    if isinstance(value, LoDArray):
        return value.with_data(change(value.data, counts))
    return change(value, counts)


def _repeated(attr: str, slot: str) -> Rule:
    """Whole copies of X side by side, along other dims than those that are wide; one place, as often as one has."""

    def rule(call: Call) -> Found:
        found, x = given(call, f"{attr}_tensor", slot), call.shape("X")
        times = call.attr(attr) if found is None else found.numbers
        if times is None or len(times) != len(x) or any(times[axis.dim] != 1 for axis in call.axes("X")):
            return None
        sized = [(dim, n) for dim, n in enumerate(times) if isinstance(n, RowSize)]
        if any(n.label is None or x[dim] != 1 for dim, n in sized):
            return None
        if found is not None:
            found.fix([int(n) for n in times])
        return {"*": [*call.axes("X"), *(Axis(dim, int(n), n.label) for dim, n in sized)]}

    return rule


def _expand_as(call: Call) -> Found:
    """X tiled to the shape of another value, with the axes of that: X has each of them, or one place there."""
    (x, target), gradients = (call.axes(slot) for slot in ("X", "target_tensor")), "Out" + GRAD
    if not call.only("X", "target_tensor", gradients) or len(call.shape("X")) != len(call.shape("target_tensor")):
        return None
    tiled = [a for a in target if a not in x]
    fits = set(x) <= set(target) and all(call.shape("X")[a.dim] == 1 for a in tiled)
    return {"*": target} if fits else None


def in_front(axes: Sequence[Axis], shape: Sequence[int]) -> bool:
    """Whether none of the axes is the last of several dims, which may be dropped."""
    return not any(axis.dim == len(shape) - 1 and shape[-1] == 1 for axis in axes)


LAYOUTS: dict[str, Rule] = {
    "concat": _joined,
    "gather": _gather,
    "gather_nd": _gather_nd,
    "split": _split,
    "stack": _stack,
    "unstack": _unstacked,
    "unbind": _unstacked,
    "pixel_shuffle": _shuffled,
    "transpose": _transpose,
    "transpose2": _transpose,
    "reshape": _reshape,
    "reshape2": _reshape,
    "flatten": _flatten,
    "flatten2": _flatten,
    "flatten_contiguous_range": _flatten_range,
    "squeeze": _squeeze,
    "squeeze2": _squeeze,
    "unsqueeze": _unsqueeze,
    "unsqueeze2": _unsqueeze,
    "slice": _slice,
    "expand_as": _expand_as,
    "expand": _repeated("expand_times", "ExpandTimes"),
    "tile": _repeated("repeat_times", "RepeatTimes"),
}
