"""Slices, strided slices and crops."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lowering.dtypes import LOD_TENSOR, LOD_TENSOR_ARRAY
from lowering.engine.shapes.infer_rules import by_rule
from lowering.errors import Misfit, NeedsConcrete, NeedsExact, OpError
from lowering.ops import fitting
from lowering.ops.shared import declared_shape, ints, names_in, outputs_like, shape_from, transpose_of
from lowering.program import PADDLE_2, VarInfo
from lowering.registry import MASKED, Sizes, Value, Wise, op
from lowering.sizes.counts import RowSize, sizes_of, with_rows
from lowering.symbols import is_symbol
from lowering.values import LoDArray, Meta, RowCounts, TensorArray, data_of, is_concrete

# --- slice -------------------------------------------------------------------------------------------------------


def _span(length: int, start: int, end: int) -> tuple[int, int]:
    """Python's meaning of [start:end) for a dim."""
    first, last, _ = slice(start, end).indices(length)
    return first, max(first, last)


def _lists(attr: Any, tensor: Any, tensors: Any, count: int) -> list[Any]:
    """One bound per axis: a number, ``RowSize`` for a count of rows, or a traced scalar."""
    if tensors:
        return [_number(t) for t in tensors]
    if isinstance(tensor, RowCounts):
        return sizes_of(tensor)
    if tensor is not None:
        return [_number(data_of(tensor).reshape(-1)[i]) for i in range(count)]
    return list(attr)


def _number(value: Any) -> Any:
    try:
        return ints(value, "slice: a bound")[0]
    except NeedsConcrete:
        return data_of(value).reshape(())


def _one_slice(x: Any, axis: int, start: Any, end: Any, single: bool) -> Any:
    """x[start:end] along an axis. A traced start is possible where one element is taken."""
    bounds = (start, end) if not single else (start,)
    if any(map(is_symbol, (x.shape[axis], *bounds))) and all(isinstance(b, int) or is_symbol(b) for b in bounds):
        return _open_slice(x, axis, start, end, single)
    if isinstance(start, int) and (isinstance(end, int) or single):
        first, last = _span(x.shape[axis], start, _end(x.shape[axis], start, end) if single else end)
        return jax.lax.slice_in_dim(x, first, last, axis=axis)
    if not single:
        raise NeedsConcrete("slice: the bounds of an axis that is kept")
    at = jnp.where(start < 0, start + x.shape[axis], start)
    return jax.lax.dynamic_slice_in_dim(x, at, 1, axis=axis)


def _end(length: int, start: int, end: Any) -> int:
    """The end of a slice of one element: ``x[v]`` writes v + 1, which for -1 is not 0 but the end of the axis."""
    return length if start == -1 else end if isinstance(end, int) else start + 1


def _open_slice(x: Any, axis: int, start: Any, end: Any, single: bool) -> Any:
    """x[start:end] along an axis whose size or bounds are symbols."""
    if single:
        at = start + x.shape[axis] if isinstance(start, int) and start < 0 else start
        return jax.lax.dynamic_slice_in_dim(x, at, 1, axis=axis)
    return x[(slice(None),) * axis + (slice(start, end),)]


def _cut(x, axes, starts, ends, decrease_axis):
    for axis, start, end in zip(axes, starts, ends, strict=True):
        x = _one_slice(x, axis % x.ndim, start, end, axis in decrease_axis)
    return _squeezed(x, decrease_axis)


def _counted(axes, starts, ends, decrease_axis, shape) -> list[int]:
    """The dims of a slice: those that a count ends are ``RowSize``, others are not looked into."""
    dims = list(shape)
    for axis, start, end in zip(axes, starts, ends, strict=True):
        if not isinstance(end, RowSize) or axis in decrease_axis:
            continue
        if (axis and end.label is None) or not isinstance(start, int) or start < 0:
            raise NeedsExact("slice up to a row count, but not of rows from a fixed one on")
        dims[axis] = end.within(min(start, shape[axis]), shape[axis])
    return [n for axis, n in enumerate(dims) if axis not in decrease_axis]


def _squeezed(x, axes):
    """x without these axes of size 1; a number is [1]."""
    if axes:
        x = jnp.squeeze(x, tuple(axes))
    return x.reshape(1) if x.ndim == 0 else x


def _infer_slice(op, var_of):
    x = var_of(op.inputs["Input"][0])
    if x.type == LOD_TENSOR_ARRAY:
        return _infer_array_part(op, x)
    axes = list(op.attrs.get("axes") or [])
    starts = declared_shape(op, var_of, "starts", "StartsTensor", "StartsTensorList") or []
    ends = declared_shape(op, var_of, "ends", "EndsTensor", "EndsTensorList") or []
    flags = _flags(op, len(axes))
    dims = list(x.shape)
    for i, axis in enumerate(axes):
        given = len(starts) == len(axes) == len(ends) and flags[i] != -1
        if given and dims[axis] >= 0:
            first, last = _span(dims[axis], starts[i], ends[i])
            if last <= first and dims[axis] > 0:
                raise OpError(
                    f"op slice: nothing is left of axis {axis}, of size {dims[axis]}.\n"
                    f"  expected: a start before its end, within the axis; received: [{starts[i]}, {ends[i]})\n"
                    "  to do: check the index or the bounds"
                )
            dims[axis] = last - first
        elif not given:
            dims[axis] = -1
    level = 0 if axes[:1] == [0] else x.lod_level
    return outputs_like(op, "Out", VarInfo(_without(dims, op.attrs.get("decrease_axis")), x.dtype, level))


def _infer_array_part(op, array):
    """An element, or an array of elements: what an array declares is the shape of its elements."""
    kind = LOD_TENSOR if op.attrs.get("decrease_axis") else LOD_TENSOR_ARRAY
    return outputs_like(op, "Out", VarInfo(array.shape, array.dtype, array.lod_level, kind))


def _flags(op, count: int) -> list[int]:
    """``infer_flags``, -1 where a bound is not known; the list may be short: the axes past its end are known."""
    flags = list(op.attrs.get("infer_flags") or ())[:count]
    return flags + [1] * (count - len(flags))


def _without(dims, decrease_axis) -> tuple[int, ...]:
    kept = tuple(n for i, n in enumerate(dims) if i not in set(decrease_axis or ()))
    return kept or (1,)


def _check_rows(x: Any, axes: list[int]) -> None:
    if isinstance(x, LoDArray | Meta) and x.padded and any(a % len(x.shape) == 0 for a in axes):
        raise NeedsExact("slice cuts padded rows")


def _off_sliced(attrs, ndim):
    return None if any(a % max(ndim, 1) == 0 for a in attrs["axes"]) else Wise("input")


@op("slice", rows=_off_sliced, lod={"Out": "input"}, infer=_infer_slice, diff="input", fold=True, linear=True)
def slice_(
    input: Value,
    starts_tensor=None,
    ends_tensor: Sizes = None,
    starts_tensor_list: list = None,
    ends_tensor_list: list[Sizes] = None,
    *,
    axes: list[int],
    starts: list[int] = (),
    ends: list[int] = (),
    infer_flags: list[int] = (),
    decrease_axis: list[int] = (),
):
    """Out = Input[starts[i]:ends[i]] along axes[i]; dimensions ``decrease_axis`` (of size 1) are removed.

    Bounds come from tensor lists, tensors or attributes. A tensor array is sliced along axis 0. Rows up to the number
    of rows of another value are padded like that value.
    """
    del infer_flags
    first = _lists(starts, starts_tensor, starts_tensor_list, len(axes))
    last = _lists(ends, ends_tensor, ends_tensor_list, len(axes))
    if isinstance(input, TensorArray):
        return _array_part(input, first[0], last[0], bool(decrease_axis))
    _check_rows(input, axes)
    data = input.data if isinstance(input, LoDArray) else input
    dims = _counted(axes, first, last, decrease_axis, data.shape)
    return with_rows(_cut(data, axes, first, last, list(decrease_axis)), dims)


@slice_.fits
def _(input, starts_tensor, ends_tensor, starts_tensor_list, ends_tensor_list, *, axes, starts, ends):
    fitting.axes_of("axes", axes, len(input.shape))
    if starts_tensor is None and not starts_tensor_list:
        fitting.as_many("starts", starts, len(axes))
    if ends_tensor is None and not ends_tensor_list:
        fitting.as_many("ends", ends, len(axes))


def _array_part(array: TensorArray, start: Any, end: Any, single: bool) -> Any:
    if array.stacked:
        if not single:
            raise NeedsConcrete("slice of a tensor array that a loop wrote")
        return jax.tree_util.tree_map(lambda b: jax.lax.dynamic_index_in_dim(b, start, keepdims=False), array.buffer)
    count = len(array.items or ())
    first, last = _span(count, start, _end(count, start, end) if single else end)
    items = (array.items or ())[first:last]
    return items[0] if single else TensorArray(items)


def _rows_cut(attrs, ndim):
    """The gradient of rows that were cut up to a count is zero where they are padding; what was cut is all there."""
    return _off_sliced(attrs, ndim) or MASKED


@slice_.grad(rows=_rows_cut)
def _(
    input: Meta,
    d_out,
    starts_tensor=None,
    ends_tensor: Sizes = None,
    starts_tensor_list: list = None,
    ends_tensor_list: list[Sizes] = None,
    *,
    axes,
    starts,
    ends,
    decrease_axis,
):
    _check_rows(input, axes)
    first = _lists(starts, starts_tensor, starts_tensor_list, len(axes))
    last = _lists(ends, ends_tensor, ends_tensor_list, len(axes))
    return transpose_of(lambda x: _cut(x, axes, first, last, list(decrease_axis)), input, d_out)


# --- strided_slice -----------------------------------------------------------------------------------------------


def _stride(n: int, start: int, end: int, step: int, newer: bool = False) -> slice:
    """What is taken of a dim of size n. Backwards an end of -1 is before the first element.

    Backwards Fluid steps from the end: it takes ``x[end + 1]``, ``x[end + 1 - step]`` ... up to ``start``, last first.
    NumPy and Paddle 2 (``newer``) step from the start, which gives others unless ``start - end`` is one more than a
    multiple of the step.
    """
    if is_symbol(n) and step > 0:
        return slice(start, end, step)
    whole = end == -1 and step < 0
    start = start + n if start < 0 else start
    end = end + n if end < 0 and not whole else end
    if step > 0:
        return slice(max(start, 0), max(end, 0), step)
    start, end = min(start, n - 1), max(end, -1)
    if newer:
        start, end = max(start, 0), end if whole else max(end, 0)
    last = start if newer else end + 1 + (start - end - 1) // -step * -step
    return slice(last, end if end >= 0 else None, step) if start > end else slice(0, 0)


def _strided(x, axes, bounds, decrease_axis, ctx):
    index = [slice(None)] * x.ndim
    for axis, start, end, step in zip(axes, *bounds, strict=True):
        index[axis] = _stride(x.shape[axis], start, end, step, ctx.release >= PADDLE_2)
    return _squeezed(x[tuple(index)], decrease_axis)


def _infer_strided(op, var_of):
    x = var_of(op.inputs["Input"][0])
    axes = list(op.attrs.get("axes") or [])
    bounds = [
        declared_shape(op, var_of, name, f"{name.capitalize()}Tensor", f"{name.capitalize()}TensorList") or []
        for name in ("starts", "ends", "strides")
    ]
    flags = _flags(op, len(axes))
    dims = list(x.shape)
    for i, axis in enumerate(axes):
        known = all(len(b) == len(axes) for b in bounds) and flags[i] != -1 and dims[axis] >= 0
        dims[axis] = len(range(dims[axis])[_stride(dims[axis], *(b[i] for b in bounds))]) if known else -1
    if any(names_in(op, f"{name}Tensor") for name in ("Starts", "Ends", "Strides")):
        dims = [-1] * len(dims)
    return outputs_like(op, "Out", VarInfo(_without(dims, op.attrs.get("decrease_axis")), x.dtype, x.lod_level))


def _strided_bounds(starts, ends, strides, tensors, lists):
    attrs = (starts, ends, strides)
    return [shape_from(a, t, many, "strided_slice: a bound") for a, t, many in zip(attrs, tensors, lists, strict=True)]


@op(rows=_off_sliced, lod={"Out": "input"}, infer=_infer_strided, diff="input", linear=True)
def strided_slice(
    input,
    starts_tensor=None,
    ends_tensor=None,
    strides_tensor=None,
    starts_tensor_list: list = None,
    ends_tensor_list: list = None,
    strides_tensor_list: list = None,
    *,
    axes: list[int],
    starts: list[int] = (),
    ends: list[int] = (),
    strides: list[int] = (),
    infer_flags: list[int] = (),
    decrease_axis: list[int] = (),
    ctx,
):
    """Out = Input[starts[i]:ends[i]:strides[i]] along axes[i]; strides may be negative."""
    del infer_flags
    tensors = (starts_tensor, ends_tensor, strides_tensor)
    lists = (starts_tensor_list, ends_tensor_list, strides_tensor_list)
    bounds = _strided_bounds(starts, ends, strides, tensors, lists)
    return _strided(input, axes, bounds, list(decrease_axis), ctx)


@strided_slice.fits
def _(input, *, axes, strides):
    fitting.axes_of("axes", axes, len(input.shape))
    if 0 in strides:
        raise Misfit(f"strides must not be 0, received {list(strides)}")


@strided_slice.grad
def _(
    input: Meta,
    d_out,
    starts_tensor=None,
    ends_tensor=None,
    strides_tensor=None,
    starts_tensor_list: list = None,
    ends_tensor_list: list = None,
    strides_tensor_list: list = None,
    *,
    axes,
    starts,
    ends,
    strides,
    decrease_axis,
    ctx,
):
    tensors = (starts_tensor, ends_tensor, strides_tensor)
    lists = (starts_tensor_list, ends_tensor_list, strides_tensor_list)
    bounds = _strided_bounds(starts, ends, strides, tensors, lists)
    return transpose_of(lambda x: _strided(x, axes, bounds, list(decrease_axis), ctx), input, d_out)


# --- crop --------------------------------------------------------------------------------------------------------


def _window(x, offsets, shape):
    return jax.lax.dynamic_slice(x, list(offsets), list(shape))


def _placed(d_out, offsets, like):
    return jax.lax.dynamic_update_slice(jnp.zeros(like.shape, d_out.dtype), d_out, list(offsets))


def _offsets(attr, tensor, tensors, ndim):
    """Where the window starts; tensors need not be known while tracing."""
    if tensors:
        return [t.reshape(()).astype(np.int32) for t in tensors]
    if tensor is not None:
        if tensor.size != ndim:  # told before it is taken apart, as shape inference tries thousands
            raise ValueError(f"expected an offset for each of {ndim} dims, received {tensor.size}")
        return list(tensor.reshape(-1).astype(np.int32))
    return [np.int32(o) for o in attr] or [np.int32(0)] * ndim


def _like_y(shapes, attr):
    """Y's shape, where dims are unknown: X's and Y's rows need not be as many."""
    x, y = shapes["X"], shapes.get("Y", ())
    fits = len(x) == len(y) and all(b <= a or a < 0 for a, b in zip(x, y, strict=True))
    return {"Out": y} if fits and -1 in (*x, *y) else None


@op(diff="x", lod=None, rows=None, infer=by_rule(_like_y))
def crop(x, y: Meta = None, offsets=None, *, offsets_: list[int] = (), shape: list[int] = ()):
    """Out = the window of X that starts at the offsets and has ``shape`` (or Y's)."""
    dims = list(y.shape) if y is not None else list(shape)
    return _window(x, _offsets(offsets_, offsets, None, x.ndim), dims)


@crop.grad
def _(x: Meta, d_out, offsets=None, *, offsets_):
    return _placed(d_out, _offsets(offsets_, offsets, None, len(x.shape)), x)


def _infer_crop(op, var_of):
    x = var_of(op.inputs["X"][0])
    dims = declared_shape(op, var_of, "shape", "Shape", "ShapeTensor")
    if dims is None or len(dims) != len(x.shape):
        dims = [-1] * len(x.shape)
    offsets = list(op.attrs.get("offsets") or [0] * len(dims))
    fixed = not (names_in(op, "Offsets") or names_in(op, "OffsetsTensor") or names_in(op, "ShapeTensor"))
    fixed = fixed and not names_in(op, "Shape")
    rest = zip(dims, x.shape, offsets, strict=True)
    dims = [n - o if d == -1 and fixed and n >= 0 else d or -1 for d, n, o in rest]
    return outputs_like(op, "Out", VarInfo(tuple(dims), x.dtype, 0))


@op(diff="x", rows=None, infer=_infer_crop)
def crop_tensor(
    x,
    shape: Sizes = None,
    offsets=None,
    shape_tensor: list[Sizes] = None,
    offsets_tensor: list = None,
    *,
    offsets_: list[int] = (),
    shape_: list[int] = (),
):
    """``crop`` whose shape and offsets may be tensors or lists of tensors; a -1 in the shape extends to the end."""
    dims = shape_from(shape_, shape, shape_tensor, "crop_tensor: the shape")
    starts = _offsets(offsets_, offsets, offsets_tensor, x.ndim)
    if -1 in dims:
        at = [int(ints(o, "crop_tensor: the offsets")[0]) for o in starts]
        dims = [n - o if d == -1 else d for d, n, o in zip(dims, x.shape, at, strict=True)]
    if isinstance(dims[0], RowSize) and not _has_room(x.shape[0], starts[0], dims[0]):
        raise NeedsExact("crop_tensor takes as many rows as another value has, and may not find them")
    return with_rows(_window(x, starts, dims), dims)


@crop_tensor.fits
def _(x, shape, shape_tensor, *, shape_):
    if shape is None and not shape_tensor:
        fitting.as_many("shape", shape_, len(x.shape))


def _has_room(length: int, start: Any, size: int) -> bool:
    return is_concrete(start) and int(start) + size <= length


@crop_tensor.grad(rows=MASKED)
def _(x: Meta, d_out, offsets=None, offsets_tensor: list = None, *, offsets_):
    return _placed(d_out, _offsets(offsets_, offsets, offsets_tensor, len(x.shape)), x)
