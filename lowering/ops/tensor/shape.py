"""Reshaping, which moves no elements, and transposition."""

from __future__ import annotations

from math import prod
from typing import Any

import jax.numpy as jnp
import numpy as np

from lowering.engine.shapes.infer_rules import Out, by_rule
from lowering.errors import NeedsExact
from lowering.ops import fitting
from lowering.ops.shared import declared_shape, names_in, outputs_like, shape_from, zero_rows
from lowering.program import VarInfo, declared_product
from lowering.registry import MASKED, WISE, Sizes, op
from lowering.sizes import multiples
from lowering.sizes.counts import RowSize, with_rows
from lowering.values import LoDArray, Meta, data_of, fill_padding

X_SHAPE_LOD = {"X@GRAD": "XShape"}  # what the gradients take their LoD from


def keep_rows(x: LoDArray, out: Any) -> Any:
    """``out`` with the rows of X where dim 0 still is the rows.

    Several rows out of each padded one are rows, too, and so is what joins them again.
    """
    if not x.data.ndim:
        return out
    rows = out.shape[0] if out.ndim else -1
    if rows == x.capacity:
        return x.with_data(out)
    if x.padded and rows > 0 and rows % x.capacity == 0:
        return LoDArray(out, (), multiples.times(x.rows(), rows // x.capacity))
    if x.padded and rows > 0 and x.capacity % rows == 0:
        count = multiples.part(x.rows(), x.capacity // rows)
        if count is not None:
            return LoDArray(fill_padding(out, count, backward=False), (), count)
    if x.padded:
        raise NeedsExact("a change of shape would mix padded rows")
    return out


# --- reshape -------------------------------------------------------------------------------------------------------


def _target(x: tuple[int, ...], wanted: list[int]) -> tuple[int, ...]:
    """Fluid's reshape argument: 0 copies the dim of X, one -1 is what is left."""
    dims = [x[i] if d == 0 and i < len(x) else d for i, d in enumerate(wanted)]
    if -1 in dims:
        known = prod(d for d in dims if d != -1)
        dims[dims.index(-1)] = prod(x) // known if known else 0
    return tuple(dims)


def _infer_reshape(op, var_of):
    x = var_of(op.inputs["X"][0])
    wanted = declared_shape(op, var_of, "shape", "Shape", "ShapeTensor")
    found = _x_shape(op, x)
    if wanted is None:
        return found
    dims = [x.shape[i] if d == 0 and i < len(x.shape) else d for i, d in enumerate(wanted)]
    tensors = names_in(op, "ShapeTensor") or (names_in(op, "Shape") and not op.attrs.get("shape"))
    if dims.count(-1) == 1 and -1 in wanted and not tensors and all(d >= 0 for d in x.shape):
        dims = list(_target(tuple(x.shape), wanted))
    if not tensors and 0 not in dims and all(d >= 0 for d in (*dims, *x.shape)):
        if prod(dims) != prod(x.shape):
            raise ValueError(
                f"reshape of {list(x.shape)} to {list(wanted)}: the numbers of elements differ; use -1 for one"
            )
    return found | _out(op, x, tuple(dims), bool(names_in(op, "ShapeTensor")))


def _out(op, x, dims, computed=False):
    """Out has ``dims``, and the LoD of X where its rows are X's, unless they are ``computed`` one by one."""
    level = x.lod_level if dims[:1] == x.shape[:1] and not computed else 0
    return outputs_like(op, "Out", VarInfo(dims, x.dtype, level))


def _x_shape(op, x):
    return outputs_like(op, "XShape", VarInfo((0, *x.shape), x.dtype, x.lod_level))


def _reshape(x: LoDArray, shape_, shape, shape_tensor):
    wanted = shape_from(shape_, shape, shape_tensor, "reshape: the shape")
    out = keep_rows(x, x.data.reshape(_target(x.shape, wanted)))
    if not (shape_tensor and isinstance(out, LoDArray)):
        return out
    return LoDArray(out.data, (), out.rows()) if out.padded else out.data  # Fluid shares no LoD with computed dims


@op(rows=MASKED, lod=None, infer=_infer_reshape, diff="x shape shape_tensor", inplace={"Out": "x"}, linear=True)
def reshape(x: LoDArray, shape: Sizes = None, shape_tensor: list[Sizes] = None, *, shape_: list[int] = ()):
    """Out = X reshaped to ShapeTensor (list), Shape or the attribute; 0 copies a dimension, -1 infers one."""
    return _reshape(x, shape_, shape, shape_tensor)


@reshape.grad
def _(x: Meta, out: Meta, d_out: LoDArray, shape: Meta = None, shape_tensor: list[Meta] = None):
    return _back(d_out, x, x.shape), None, None


def _back(d_out: LoDArray, x: Meta, shape: tuple[int, ...]) -> Any:
    """The gradient in the shape of X, with the rows and the LoD that ``x`` (X or XShape) has."""
    out = d_out.data.reshape(shape) if prod(shape) == d_out.data.size else None
    if out is None:
        raise NeedsExact("the gradient of a change of shape has other rows than its input")
    if d_out.padded == (x.nrows is not None):
        return x.like(out)
    if d_out.padded and shape and shape[0] and d_out.capacity > shape[0] and d_out.capacity % shape[0] == 0:
        joined = d_out.capacity // shape[0]
        count = multiples.part(d_out.rows(), joined)
        return LoDArray(out, (), d_out.rows() // np.int32(joined) if count is None else count)
    return keep_rows(d_out, out)


@op(
    out="Out XShape~",
    rows=MASKED,
    lod=None,
    vendor="use_quantizer",
    infer=_infer_reshape,
    diff="x",
    inplace={"Out": "x"},
    linear=True,
)
def reshape2(x: LoDArray, shape: Sizes = None, shape_tensor: list[Sizes] = None, *, shape_: list[int] = ()):
    """``reshape`` with XShape, which passes X's shape to the gradient op."""
    return _reshape(x, shape_, shape, shape_tensor), x.with_data(zero_rows(x))


@reshape2.grad(lod=X_SHAPE_LOD)
def _(x_shape: Meta, d_out: LoDArray):
    return _back(d_out, x_shape, x_shape.shape[1:])


@reshape2.grad_grad(out="DDOut")
def _(dout: Meta, ddx: LoDArray):
    return _back(ddx, dout, dout.shape)


# --- squeeze, unsqueeze, flatten ---------------------------------------------------------------------------------


def _squeezed(shape: tuple[int, ...], axes: list[int]) -> tuple[int, ...]:
    """Dims of 1 among ``axes`` removed; every dim of 1 when none is named."""
    named = {a % len(shape) for a in axes}
    return tuple(n for i, n in enumerate(shape) if n != 1 or (named and i not in named))


def _infer_squeeze(op, var_of):
    """An unknown dim among ``axes`` stays unless named; without axes only known ones go."""
    x = var_of(op.inputs["X"][0])
    axes = {a % len(x.shape) for a in op.attrs.get("axes") or []}
    gone = {i for i, n in enumerate(x.shape) if (n == 1 and (not axes or i in axes)) or (n < 0 and i in axes)}
    dims = tuple(n for i, n in enumerate(x.shape) if i not in gone)
    return _x_shape(op, x) | _out(op, x, dims)


def _squeeze(x: LoDArray, axes):
    if x.padded and 0 in {axis % len(x.shape) for axis in axes}:
        raise NeedsExact("squeeze of the dim of rows")
    return keep_rows(x, x.data.reshape(_squeezed(x.shape, list(axes))))


@op(rows=MASKED, lod=None, infer=_infer_squeeze, linear=True)
def squeeze(x: LoDArray, *, axes: list[int] = ()):
    """Out = X without its dimensions of size 1, or without those among ``axes``."""
    return _squeeze(x, axes)


@squeeze.fits
def _(x, *, axes):
    _check_axes(x, axes)


def _check_axes(x, axes):
    fitting.axes_of("axes", axes, len(x.shape))


@squeeze.grad
def _(x: Meta, d_out: LoDArray):
    return _back(d_out, x, x.shape)


@op(out="Out XShape~", rows=MASKED, lod=None, infer=_infer_squeeze, inplace={"Out": "x"}, linear=True)
def squeeze2(x: LoDArray, *, axes: list[int] = ()):
    """``squeeze`` with XShape."""
    return _squeeze(x, axes), x.with_data(zero_rows(x))


@squeeze2.fits
def _(x, *, axes):
    _check_axes(x, axes)


@squeeze2.grad(lod=X_SHAPE_LOD)
def _(x_shape: Meta, d_out: LoDArray):
    return _back(d_out, x_shape, x_shape.shape[1:])


def _unsqueezed(shape: tuple[int, ...], axes: list[int]) -> tuple[int, ...]:
    """Ones inserted one after another, each axis counted in the shape so far with the new dim."""
    dims = list(shape)
    for axis in axes:
        dims.insert(axis if axis >= 0 else axis + len(dims) + 1, 1)
    return tuple(dims)


def _infer_unsqueeze(op, var_of):
    x = var_of(op.inputs["X"][0])
    listed = [int(axis) for axis in op.attrs.get("axes") or ()]
    axes = listed or declared_shape(op, var_of, "axes", "AxesTensor", "AxesTensorList")
    if axes is None:
        return _x_shape(op, x)
    tensors = names_in(op, "AxesTensor") + names_in(op, "AxesTensorList")
    known = listed or not tensors
    dims = _unsqueezed(tuple(x.shape), axes) if known else (-1,) * (len(x.shape) + len(axes))
    return _x_shape(op, x) | _out(op, x, dims)


def _unsqueeze(x: LoDArray, axes, tensor, tensors):
    named = axes or shape_from((), tensor, tensors, "unsqueeze: the axes")  # the attribute wins, unlike in reshape
    return keep_rows(x, x.data.reshape(_unsqueezed(x.shape, named)))


@op(rows=MASKED, lod=None, infer=_infer_unsqueeze, diff="x", linear=True)
def unsqueeze(x: LoDArray, axes_tensor=None, axes_tensor_list: list = None, *, axes: list[int] = ()):
    """Out = X with a dimension of size 1 inserted at each of ``axes`` in turn."""
    return _unsqueeze(x, axes, axes_tensor, axes_tensor_list)


@unsqueeze.fits
def _(x, *, axes):
    _check_new_axes(x, axes)


def _check_new_axes(x, axes):
    for made, axis in enumerate(axes):
        fitting.axis_of("axes", axis, len(x.shape) + made + 1)


@unsqueeze.grad
def _(x: Meta, d_out: LoDArray):
    return _back(d_out, x, x.shape)


@op(out="Out XShape~", rows=MASKED, lod=None, infer=_infer_unsqueeze, diff="x", inplace={"Out": "x"}, linear=True)
def unsqueeze2(x: LoDArray, axes_tensor=None, axes_tensor_list: list = None, *, axes: list[int] = ()):
    """``unsqueeze`` with XShape."""
    return _unsqueeze(x, axes, axes_tensor, axes_tensor_list), x.with_data(zero_rows(x))


@unsqueeze2.fits
def _(x, *, axes):
    _check_new_axes(x, axes)


@unsqueeze2.grad(lod=X_SHAPE_LOD)
def _(x_shape: Meta, d_out: LoDArray):
    return _back(d_out, x_shape, x_shape.shape[1:])


def _flatten(x: LoDArray, axis: int):
    return keep_rows(x, x.data.reshape(prod(x.shape[:axis]), prod(x.shape[axis:])))


def _infer_flatten(op, var_of):
    x = var_of(op.inputs["X"][0])
    axis = op.attrs.get("axis", 1)
    return _x_shape(op, x) | _out(op, x, (declared_product(x.shape[:axis]), declared_product(x.shape[axis:])))


@op(rows=MASKED, lod=None, infer=_infer_flatten)
def flatten(x: LoDArray, *, axis: int = 1):
    """Out = X as a matrix; its first ``axis`` dimensions form the rows."""
    return _flatten(x, axis)


@flatten.grad
def _(x: Meta, d_out: LoDArray):
    return _back(d_out, x, x.shape)


@op(out="Out XShape~", rows=MASKED, lod=None, infer=_infer_flatten, inplace={"Out": "x"})
def flatten2(x: LoDArray, *, axis: int = 1):
    """``flatten`` with XShape."""
    return _flatten(x, axis), x.with_data(zero_rows(x))


@flatten2.grad(lod=X_SHAPE_LOD)
def _(x_shape: Meta, d_out: LoDArray):
    return _back(d_out, x_shape, x_shape.shape[1:])


# --- transpose ---------------------------------------------------------------------------------------------------


def _rows_first(attrs, ndim):
    """Row-wise while dim 0 stays in front."""
    return WISE if list(attrs["axis"])[:1] == [0] else None


def _inverse(axis: list[int]) -> list[int]:
    return sorted(range(len(axis)), key=axis.__getitem__)


def _permuted_dims(shapes, attr):
    x, axis = shapes["X"], attr("axis")
    if sorted(axis) != list(range(len(x))):
        return None
    return {"Out": tuple(x[i] for i in axis), "XShape": Out((0, *x), lod="X")}


_infer_transpose = by_rule(_permuted_dims)


@op(vendor="use_mkldnn use_quantizer", rows=_rows_first, lod=None, infer=_infer_transpose)
def transpose(x, *, axis: list[int], data_format: str = "AnyLayout"):
    """Dimension i of Out is dimension axis[i] of X."""
    del data_format
    return jnp.transpose(x, axis)


@transpose.grad
def _(x: Meta, out: Meta, d_out, *, axis):
    return jnp.transpose(d_out, _inverse(axis))


def _permuted(x: LoDArray, axis: list[int]) -> Any:
    """The data with permuted dims; padded rows have to stay in front."""
    if x.padded and list(axis)[:1] != [0]:
        raise NeedsExact("a permutation of dims would move padded rows")
    out = jnp.transpose(x.data, axis)
    return LoDArray(out, (), x.nrows) if x.padded else out


@op(out="Out XShape~", vendor="use_mkldnn use_quantizer", rows=MASKED, lod=None, infer=_infer_transpose)
def transpose2(x: LoDArray, *, axis: list[int], data_format: str = "AnyLayout"):
    """``transpose`` with XShape."""
    del data_format
    return _permuted(x, axis), x.with_data(zero_rows(x))


@transpose2.grad(lod=X_SHAPE_LOD)
def _(x_shape: Meta, d_out: LoDArray, *, axis):
    moved = _permuted(d_out, _inverse(axis))
    if d_out.padded != (x_shape.nrows is not None):
        return moved
    return x_shape.like(data_of(moved))


# --- expand ------------------------------------------------------------------------------------------------------


def _infer_expand(op, var_of):
    x = var_of(op.inputs["X"][0])
    times = declared_shape(op, var_of, "expand_times", "ExpandTimes", "expand_times_tensor")
    if times is None or len(times) != len(x.shape):
        times = [-1] * len(x.shape)
    dims = tuple(-1 if n < 0 or t < 0 else n * t for n, t in zip(x.shape, times, strict=True))
    return _out(op, x, dims)


EXPAND_SLOTS = {"expand_times_tensor": "expand_times_tensor"}


def _expand(x: LoDArray, expand_times, tensor, tensors):
    times = shape_from(expand_times, tensor, tensors, "expand: the repetitions")
    out = jnp.tile(x.data, times)
    if any(isinstance(t, RowSize) for t in times):
        if x.padded or any(n != 1 for n, t in zip(x.shape, times, strict=True) if isinstance(t, RowSize)):
            raise NeedsExact("expand repeats rows as often as another value has rows")
        return with_rows(out, times)
    if x.padded and times[0] != 1:
        raise NeedsExact("expand repeats padded rows")
    return keep_rows(x, out)


@op(rows=MASKED, lod=None, infer=_infer_expand, slots=EXPAND_SLOTS, diff="x")
def expand(
    x: LoDArray, expand_times: Sizes = None, expand_times_tensor: list[Sizes] = None, *, expand_times_: list[int] = ()
):
    """Out = X tiled expand_times[i] times along dimension i."""
    return _expand(x, expand_times_, expand_times, expand_times_tensor)


@expand.fits
def _(x, expand_times, expand_times_tensor, *, expand_times_):
    if expand_times is None and not expand_times_tensor:
        fitting.as_many("expand_times", expand_times_, len(x.shape))


def _folded(d_out, shape, times):
    """The sum of ``d_out`` over the repetitions of each dim."""
    split = [n for t, s in zip(times, shape, strict=True) for n in (t, s)]
    return jnp.sum(d_out.reshape(split), axis=tuple(range(0, len(split), 2)))


@expand.grad
def _(x: Meta, d_out: LoDArray, expand_times: Sizes = None, expand_times_tensor: list[Sizes] = None, *, expand_times_):
    times = shape_from(expand_times_, expand_times, expand_times_tensor, "expand_grad: the repetitions")
    if x.nrows is not None and times[0] != 1:
        raise NeedsExact("expand repeats padded rows")
    grad = _folded(d_out.data, x.shape, times)
    return grad if any(isinstance(t, RowSize) for t in times) else keep_rows(d_out, grad)


def _times(x, target):
    """How often X stands in each dim of another value, with the rows of that or with one that all of them repeat."""
    if target.nrows is not None and x.shape[0] not in (1, target.capacity):
        raise NeedsExact("expand_as repeats several rows as often as another value has them")
    return [t // n for t, n in zip(target.shape, x.shape, strict=True)]


@op(slots={"target_tensor": "target_tensor"}, diff="x", rows=WISE, lod=None)
def expand_as(x, target_tensor: Meta):
    """Out = X tiled to the shape of target_tensor, whose dimensions are multiples of X's."""
    return jnp.tile(x, _times(x, target_tensor))


@expand_as.grad
def _(x: Meta, target_tensor: Meta, d_out):
    return _folded(d_out, x.shape, _times(x, target_tensor))
