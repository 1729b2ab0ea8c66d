"""Joining, splitting, reversing and rolling tensors."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from lowering.dtypes import LOD_TENSOR
from lowering.errors import Misfit, NeedsExact, OpError
from lowering.ops import fitting
from lowering.ops.shared import concrete_scalar, ints, names_in, off_rows, outputs_like, shape_from
from lowering.program import EMPTY, OpSpec, VarInfo
from lowering.registry import MASKED, WISE, Longs, Value, op
from lowering.symbols import number
from lowering.values import LoDArray, Meta, data_of


def _axis(axis: int, tensor: Any, ndim: int) -> int:
    return (axis if tensor is None else int(concrete_scalar(tensor, "the axis"))) % ndim


def _infer_concat(op, var_of):
    """The sum along the axis, unknown when any part is; all dims unknown when a tensor gives the axis.

    The parts agree in the other dims, so one that knows a dim knows it for all.
    """
    parts = [var_of(n) for n in op.inputs["X"]]
    if any(p is None or p.type != LOD_TENSOR for p in parts):
        return {}
    dims = list(parts[0].shape)
    if names_in(op, "AxisTensor"):
        dims = [-1] * len(dims)
    elif all(p.shape for p in parts):
        dims = _joined_dims([tuple(p.shape) for p in parts], int(op.attrs.get("axis", 0)))
    return outputs_like(op, "Out", VarInfo(tuple(dims), parts[0].dtype, parts[0].lod_level))


def _joined_dims(shapes, axis):
    """The shape of the parts joined along ``axis``; what one part does not know of the other axes, another may."""
    if len({len(shape) for shape in shapes}) > 1:
        raise OpError(f"op concat: its inputs differ in rank.\n  received: {shapes}\n  to do: reshape them to one rank")
    axis %= len(shapes[0])
    dims = []
    for i, sizes in enumerate(zip(*shapes, strict=True)):
        known = {n for n in sizes if n >= 0}
        if i == axis:
            dims.append(-1 if min(sizes) < 0 else sum(sizes))
        elif len(known) > 1:
            raise OpError(
                f"op concat: its inputs differ along axis {i}, and only axis {axis} may differ.\n"
                f"  received: {shapes}\n  to do: check the axis, or slice or pad the inputs"
            )
        else:
            dims.append(known.pop() if known else -1)
    return dims


def _concat_rows(attrs, ndim):
    return off_rows(attrs, ndim) or MASKED


@op(vendor="use_mkldnn use_quantizer", rows=_concat_rows, diff="x", infer=_infer_concat, linear=True)
def concat(x: list[Value], axis_tensor=None, *, axis: int = 0):
    """Out = all X concatenated along ``axis`` (or AxisTensor); along axis 0, so are their sequences."""
    along = _axis(axis, axis_tensor, data_of(x[0]).ndim)
    if along == 0 and any(isinstance(v, LoDArray) for v in x):
        return _concat_ragged([v if isinstance(v, LoDArray) else LoDArray(v) for v in x])
    return jnp.concatenate([data_of(v) for v in x], axis=along)


@concat.fits
def _(x, *, axis):
    fitting.axis_of("axis", axis, len(x[0].shape))


def _concat_ragged(parts: list[LoDArray]) -> LoDArray:
    """Rows of all parts without the padding between them, which moves to the end as copies of row 0."""
    data = jnp.concatenate([p.data for p in parts])
    if not any(p.padded for p in parts):
        return LoDArray(data, _joined_lod(parts))
    source = jnp.zeros((data.shape[0],), np.int32)
    place = jnp.arange(data.shape[0], dtype=np.int32)
    total, at = np.int32(0), 0
    for part in parts:
        inside = (place >= total) & (place < total + part.rows())
        source = jnp.where(inside, at + place - total, source)
        total, at = total + part.rows(), at + part.capacity
    return LoDArray(data[source], _joined_lod(parts), total)


def _joined_lod(parts: list[LoDArray]) -> tuple[Any, ...]:
    """The offsets of all parts, concatenated; none when some part has no LoD."""
    levels = len(parts[0].lod)
    if not levels or any(len(p.lod) != levels for p in parts):
        return ()
    if levels > 1 and any(p.padded for p in parts) or any(p.nseq is not None for p in parts):
        raise NeedsExact("concat along axis 0 of padded sequences of several levels")
    joined = []
    for level in range(levels):
        offsets = parts[0].lod[level]
        for part in parts[1:]:
            offsets = jnp.concatenate([offsets, offsets[-1] + part.lod[level][1:]])
        joined.append(offsets)
    return tuple(joined)


@concat.grad
def _(x: list[Meta], d_out: LoDArray, axis_tensor=None, *, axis):
    along = _axis(axis, axis_tensor, d_out.data.ndim)
    if along == 0 and any(m.nrows is not None for m in x):
        return _cut_ragged(x, d_out.data)
    ends = np.cumsum([v.shape[along] for v in x])[:-1].tolist()
    pieces = jnp.split(d_out.data, ends, axis=along)
    return [m.like(p) for m, p in zip(x, pieces, strict=True)] if along else pieces


def _cut_ragged(x: list[Meta], data: Any) -> list[LoDArray]:
    """The rows of each X out of the joined ones; its padding is zero."""
    pieces, total = [], np.int32(0)
    for meta in x:
        rows = number(meta.shape[0]) if meta.nrows is None else meta.nrows
        place = jnp.arange(meta.shape[0], dtype=np.int32)
        part = data[jnp.minimum(total + place, data.shape[0] - 1)]
        valid = (place < rows).reshape((-1,) + (1,) * (data.ndim - 1))
        pieces.append(LoDArray(jnp.where(valid, part, 0), meta.lod, meta.nrows))
        total = total + rows
    return pieces


def _sections(length: int, sections: list[int], num: int, count: int) -> list[int]:
    if not sections:
        return [length // (num or count)] * (num or count)
    known = sum(s for s in sections if s >= 0)
    return [length - known if s < 0 else s for s in sections]


def _infer_split(op, var_of):
    """Pieces of unknown size along an unknown dim; all dims unknown when a tensor gives the axis.

    Parts of the rows have no LoD. Where a tensor gives the axis, Fluid declares X's.
    """
    x, names = var_of(op.inputs["X"][0]), op.outputs["Out"]
    axis, rank = int(op.attrs.get("axis", 0)), len(x.shape)
    sections = [int(s) for s in op.attrs.get("sections") or []]
    length = x.shape[axis]
    if names_in(op, "AxisTensor"):
        shapes = [(-1,) * rank] * len(names)
    else:
        if length >= 0 and not names_in(op, "SectionsTensorList"):
            sections = _sections(length, sections, int(op.attrs.get("num", 0)), len(names))
        sizes = sections or [-1] * len(names)
        shapes = [(*x.shape[: axis % rank], s, *x.shape[axis % rank + 1 :]) for s in sizes]
    level = x.lod_level if axis % rank or names_in(op, "AxisTensor") else 0
    return {n: VarInfo(s, x.dtype, level) for n, s in zip(names, shapes, strict=True) if n != EMPTY}


@op(out="Out*", rows=off_rows, lod={"Out": "x"}, diff="x", infer=_infer_split)
def split(
    x,
    axis_tensor=None,
    sections_tensor_list: list = None,
    *,
    ctx,
    sections: list[int] = (),
    num: int = 0,
    axis: int = 0,
):
    """Out = X split along ``axis`` into ``num`` equal parts or parts of ``sections`` (one -1 takes the remainder)."""
    along = _axis(axis, axis_tensor, x.ndim)
    if sections_tensor_list:
        sections = [ints(t, "split: the sections")[0] for t in sections_tensor_list]
    sizes = _sections(x.shape[along], list(sections), num, ctx.arity("Out"))
    return jnp.split(x, np.cumsum(sizes)[:-1].tolist(), axis=along)


@split.fits
def _(x, axis_tensor, sections_tensor_list, *, sections, axis):
    if axis_tensor is None and not sections_tensor_list and sections and x.shape[axis] >= 0:
        _check_sections(list(sections), x.shape[axis])


def _check_sections(sections, length):
    unknown = sum(s < 0 for s in sections)
    fitting.within("the number of sections of unknown size", unknown, 0, 1)
    known = sum(s for s in sections if s >= 0)
    fitting.within("the sum of the sections", known, 0 if unknown else length, length)


@split.grad_maker
def _(g):
    inputs = {"X": g.output_grad("Out"), "AxisTensor": g.input("AxisTensor")}
    attrs = dict(g.attrs)
    return [OpSpec("concat", inputs, {"Out": g.input_grad("X")}, attrs)]


@op(out="Y", rows=off_rows, lod="x", linear=True)
def stack(x: list, *, axis: int = 0):
    """Y = all X stacked along a new dimension ``axis``."""
    return jnp.stack(x, axis=axis)


@stack.grad
def _(d_y, *, axis):
    return _unstacked(d_y, axis)


def _unstacked(x, axis: int) -> list[Any]:
    axis %= x.ndim
    return [jnp.squeeze(piece, axis) for piece in jnp.split(x, x.shape[axis], axis=axis)]


def _infer_slices(slot: str, keeps_lod: bool):
    """As many slices as there are outputs, whether or not the size of the dim is known."""

    def infer(op, var_of):
        x = var_of(op.inputs["X"][0])
        axis = int(op.attrs.get("axis", 0)) % len(x.shape)
        dims = tuple(n for i, n in enumerate(x.shape) if i != axis)
        info = VarInfo(dims, x.dtype, x.lod_level if keeps_lod else 0)
        return {n: info for n in op.outputs[slot] if n != EMPTY}

    return infer


@op(out="Y*", rows=off_rows, lod=None, infer=_infer_slices("Y", False))
def unstack(x, *, axis: int = 0, num: int):
    """Y[i] = the i-th slice of X along ``axis``, with that dimension removed."""
    del num
    return _unstacked(x, axis)


@unstack.fits
def _(x, *, axis, num):
    fitting.axis_of("axis", axis, len(x.shape))
    if x.shape[axis] not in (-1, num):
        raise Misfit(f"num must be the size of X along axis {axis}, received {num} for {list(x.shape)}")


@unstack.grad
def _(d_y, *, axis):
    return jnp.stack(d_y, axis=axis)


@op(out="Out*", rows=off_rows, lod={"Out": "x"}, infer=_infer_slices("Out", True))
def unbind(x, *, axis: int = 0):
    """Out[i] = the i-th slice of X along ``axis``, with that dimension removed."""
    return _unstacked(x, axis)


@unbind.grad_maker
def _(g):
    return [OpSpec("stack", {"X": g.output_grad("Out")}, {"Y": g.input_grad("X")}, dict(g.attrs))]


def _columns(x: Any, start: int, length: int) -> slice:
    start %= x.shape[1]
    return slice(start, x.shape[1] if length < 0 else start + length)


@op(rows=WISE, lod="x")
def partial_concat(x: list, *, start_index: int = 0, length: int = -1):
    """Out = columns [start_index, start_index + length) of all X [B, N], concatenated."""
    return jnp.concatenate([v[:, _columns(v, start_index, length)] for v in x], axis=1)


@partial_concat.grad
def _(x: list[Meta], d_out, *, start_index, length):
    grads, at = [], 0
    for v in x:
        span = _columns(v, start_index, length)
        piece = d_out[:, at : at + span.stop - span.start]
        at += span.stop - span.start
        grads.append(jnp.pad(piece, ((0, 0), (span.start, v.shape[1] - span.stop))))
    return grads


@op(rows=WISE, lod="x", vendor="use_mkldnn")
def partial_sum(x: list, *, start_index: int = 0, length: int = -1):
    """Out = the sum of columns [start_index, start_index + length) of all X [B, N]."""
    total = x[0][:, _columns(x[0], start_index, length)]
    for v in x[1:]:
        total = total + v[:, _columns(v, start_index, length)]
    return total


@partial_sum.grad
def _(x: list[Meta], d_out, *, start_index, length):
    spans = [_columns(v, start_index, length) for v in x]
    return [jnp.pad(d_out, ((0, 0), (s.start, v.shape[1] - s.stop))) for s, v in zip(spans, x, strict=True)]


# --- order -------------------------------------------------------------------------------------------------------


def _off_first(name: str):
    """Row-wise unless dim 0 is among the attribute's dims."""

    def rule(attrs, ndim):
        return None if any(a % ndim == 0 for a in attrs[name]) else WISE

    return rule


@op(rows=_off_first("axis"), lod=None)
def reverse(x, *, axis: list[int]):
    """Out = X reversed along each of ``axis``, once also where one is named twice."""
    return jnp.flip(x, sorted({a % x.ndim for a in axis}))


@reverse.fits
def _(x, *, axis):
    fitting.axes_of("axis", axis, len(x.shape))


@reverse.grad_maker
def _(g):
    return [OpSpec("reverse", {"X": g.output_grad("Out")}, {"Out": g.input_grad("X")}, dict(g.attrs))]


@op(rows=_off_first("dims"), renamed={"dims": "axis"})
def flip(x, *, dims: list[int]):
    """Out = X reversed along each of ``dims``."""
    return jnp.flip(x, [a % x.ndim for a in dims])


@flip.fits
def _(x, *, dims):
    fitting.axes_of("dims", dims, len(x.shape))


@flip.grad_maker
def _(g):
    return [OpSpec("flip", {"X": g.output_grad("Out")}, {"Out": g.input_grad("X")}, dict(g.attrs))]


def _rolled(x, shifts, dims, sign):
    shifts = [sign * s for s in shifts]
    if dims:
        return jnp.roll(x, shifts, [d % x.ndim for d in dims])
    return jnp.roll(x.reshape(-1), shifts[0]).reshape(x.shape)


@op(renamed={"dims": "axis"}, newer="shifts_tensor", diff="x")
def roll(x, shifts_tensor=None, *, shifts: Longs = (), dims: Longs = ()):
    """Out = X rolled by shifts[i] along dims[i]; without dims, as a flattened vector."""
    return _rolled(x, shape_from(shifts, shifts_tensor, None, "roll: the shifts"), dims, 1)


@roll.fits
def _(x, shifts_tensor, *, shifts, dims):
    fitting.axes_of("dims", dims, len(x.shape))
    if shifts_tensor is None:
        fitting.as_many("shifts", shifts, len(dims) or 1)


@roll.grad
def _(x: Meta, d_out, shifts_tensor=None, *, shifts, dims):
    return _rolled(d_out, shape_from(shifts, shifts_tensor, None, "roll: the shifts"), dims, -1)
