"""Creating tensors from scratch or from shapes."""

from __future__ import annotations

import re
from math import ceil, prod

import jax.numpy as jnp
import numpy as np

from lowering import symbols
from lowering.dtypes import FP32, to_numpy
from lowering.engine.call import FOLD_LIMIT
from lowering.engine.checks import Demand
from lowering.errors import NeedsExact
from lowering.loops.carried import zero_gradient
from lowering.ops import fitting
from lowering.ops.shared import concrete_scalar, declared_shape, full, into_declared, outputs_like, shape_from
from lowering.program import VarInfo
from lowering.ragged.rows import sequence_count
from lowering.registry import MASKED, WISE, Float64s, Long, Longs, Scalars, Sizes, Wise, op
from lowering.sizes.counts import RowSize, shape_counts, sizes_of, with_rows
from lowering.values import Counted, LoDArray, Meta, RowCounts, TensorArray


def _scalar(text: str, dtype: np.dtype):
    """A constant written as text: exact for 64-bit integers, which a FLOAT attribute is not.

    Fluid reads an int64 as far as the text looks like an integer ("-1e3" is -1), everything else as a double that is
    then converted.
    """
    if dtype == np.int64 and (digits := re.match(r"\s*[+-]?\d+", text)):
        limits = np.iinfo(np.int64)
        return np.int64(min(max(int(digits[0]), limits.min), limits.max))
    with np.errstate(invalid="ignore"):
        return np.asarray(float(text)).astype(dtype)[()]


def infer_given_shape(op, var_of):
    """Shape inference of ops whose shape comes from ``shape``, ShapeTensor or ShapeTensorList."""
    dims = declared_shape(op, var_of, "shape", "ShapeTensor", "ShapeTensorList")
    if dims is None:
        return {}
    return outputs_like(op, "Out", VarInfo(tuple(dims), int(op.attrs.get("dtype", FP32)), 0))


@op(fold=True, infer=infer_given_shape, vendor="force_cpu", diff="")
def fill_constant(
    value_tensor=None,
    shape_tensor: Sizes = None,
    shape_tensor_list: list[Sizes] = None,
    *,
    ctx,
    dtype: int = 5,
    shape: Longs = (),
    value: float = 0.0,
    str_value: str = "",
):
    """Out = a tensor of ``shape`` filled with ValueTensor, or ``str_value``, or ``value``."""
    dims = shape_from(shape, shape_tensor, shape_tensor_list, "fill_constant: the shape")
    kind = to_numpy(dtype)
    if value_tensor is not None:
        whole = jnp.broadcast_to(value_tensor.reshape(()).astype(kind), dims)
        return into_declared(with_rows(whole, dims), ctx, dims[0] if dims else 1)
    fill = _scalar(str_value, kind) if str_value else np.asarray(value).astype(kind)[()]
    # What is known on the host anyway need not go to the device and back.
    small = not any(map(symbols.is_symbol, dims)) and prod(dims) <= FOLD_LIMIT
    whole = np.full(dims, fill, kind) if small else full(dims, fill, kind)
    return into_declared(with_rows(whole, dims), ctx, dims[0] if dims else 1)


def batch_rows(attrs, ndim):
    """Rows are counted where they are those of both; a later dimension of Out cannot be padded."""
    del ndim
    return None if attrs["input_dim_idx"] == 0 != attrs["output_dim_idx"] else MASKED


def _batch_dims(input: Meta, shape, input_dim_idx, output_dim_idx):
    dims = list(shape)
    dims[output_dim_idx] = input.shape[input_dim_idx]
    return dims


@op(vendor="force_cpu", rows=batch_rows, lod=None, diff="")
def fill_constant_batch_size_like(
    input: Meta,
    *,
    shape: list[int],
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
    dtype: int = 5,
    value: float = 0.0,
    str_value: str = "",
):
    """Out = a constant tensor whose dimension ``output_dim_idx`` equals dimension ``input_dim_idx`` of Input.

    If Input has LoD and input_dim_idx is 0, that is the number of sequences of the finest level.
    """
    dims = _batch_dims(input, shape, input_dim_idx, output_dim_idx)
    nrows = input.nrows if input_dim_idx == output_dim_idx == 0 else None
    if input.lod and input_dim_idx == 0:
        dims[output_dim_idx] = input.lod[-1].shape[0] - 1
        nrows = sequence_count(input)
    kind = to_numpy(dtype)
    fill = _scalar(str_value, kind) if str_value else np.asarray(value).astype(kind)[()]
    out = jnp.full(dims, fill, kind)
    return out if nrows is None else LoDArray(out, (), nrows)


@op(fold=True, rows=WISE, diff="", absent="x")
def fill_zeros_like(x: Meta):
    """Out = zeros like X, a tensor or a tensor array; nothing if X has no value, for a branch did not run."""
    if x is None:
        return None
    return zero_gradient(x) if isinstance(x, TensorArray) else jnp.zeros(x.shape, x.dtype)


@op(fold=True, rows=WISE, diff="")
def fill_zeros_like2(x: Meta, *, dtype: int = 5):
    """Out = zeros like X, with dtype ``dtype``."""
    return jnp.zeros(x.shape, to_numpy(dtype))


@op(fold=True, rows=WISE, diff="")
def fill_any_like(x: Meta, *, value: float = 0.0, dtype: int = -1):
    """Out = ``value`` in the shape of X; dtype -1 means X's."""
    kind = x.dtype if dtype < 0 else to_numpy(dtype)
    _holds(np.dtype(kind), value)
    return jnp.full(x.shape, np.asarray(value).astype(kind)[()], kind)


def _holds(kind: np.dtype, value: float) -> None:
    """Refuse a number that the type does not hold; floats hold infinities, as Paddle 2's kernel says."""
    if kind.kind not in "iuf" or (kind.kind == "f" and not np.isfinite(value)):
        return
    bounds = np.finfo(kind) if kind.kind == "f" else np.iinfo(kind)
    if not float(bounds.min) <= value <= float(bounds.max):
        raise ValueError(f"{value} cannot be filled into a tensor of {kind}: expected {bounds.min} to {bounds.max}")


@op(fold=True, vendor="force_cpu")
def fill(*, value: list[float], shape: list[int], dtype: int = 5):
    """Out = the listed values in ``shape``."""
    return jnp.asarray(np.asarray(value).astype(to_numpy(dtype)).reshape(shape))


@op(fold=True, newer="fp64_values values")
def assign_value(
    *,
    shape: list[int],
    dtype: int,
    bool_values: list[int] = (),
    fp32_values: list[float] = (),
    int32_values: list[int] = (),
    int64_values: Longs = (),
    fp64_values: Float64s = (),
    values: Scalars = (),
):
    """Out = the values of the attribute for ``dtype``, in ``shape``; Paddle 2 may store them in ``values``."""
    kind = to_numpy(dtype)
    if len(values) or len(fp64_values):
        return np.asarray(list(values) or list(fp64_values)).astype(kind).reshape(shape)
    chosen = {"b": bool_values, "f": fp32_values}.get(kind.kind)
    if chosen is None:
        chosen = int64_values if kind == np.int64 else int32_values
    return np.asarray(chosen, kind).reshape(shape)


@op(lod=None, rows=MASKED, diff="")
def shape(input: Meta):
    """Out = the shape of Input, int32."""
    if input.nrows is None:
        return symbols.tensor(input.shape, np.int32)
    return shape_counts(input.shape, input.nrows, np.int32)


@op(lod=None, rows=MASKED, diff="")
def size(input: Meta):
    """Out[1] = the number of elements of Input, int64."""
    if input.nrows is None:
        return symbols.tensor([prod(input.shape)], np.int64)
    rows, each = Counted(input.shape[0]), prod(input.shape[1:])
    return RowCounts((input.nrows,), (rows,), ((each,),), (0,), (1,), np.dtype(np.int64))


def _vector_of_start(op, var_of):
    """One unknown dim, the data type of Start."""
    start = var_of(op.inputs["Start"][0])
    return outputs_like(op, "Out", VarInfo((-1,), start.dtype, 0))


def _numbered(start, end, step):
    if (concrete_scalar(start, "range: Start"), concrete_scalar(step, "range: Step")) != (0, 1):
        raise NeedsExact("range from another start than 0, or by another step than 1, to a row count")
    (count,) = sizes_of(end)
    return with_rows(np.arange(count, dtype=start.dtype), [count])


@op("range", infer=_vector_of_start, diff="", fold=True)
def range_(start, end: Sizes, step):
    """Out = Start, Start + Step, ... before End; all [1], required as host values since they determine the length.

    An End that is a row count, from 0 by 1, enumerates the rows.
    """
    kind = start.dtype
    if isinstance(end, RowCounts):
        return _numbered(start, end, step)
    first, last, by = (concrete_scalar(v, "range: Start, End and Step") for v in (start, end, step))
    if symbols.is_symbol(last):
        return (first + by * jnp.arange(-((int(first) - last) // int(by)))).astype(kind)
    count = max(0, ceil((last - first) / by))
    return (first + by * np.arange(count)).astype(kind)


def _spaced(start, stop, count: RowSize):
    """As many values from ``start`` to ``stop`` as there are rows, padded behind them."""
    step = (stop.reshape(()) - start.reshape(())) / jnp.maximum(count.nrows - 1, 1)
    return with_rows(start.reshape(()) + step.astype(start.dtype) * jnp.arange(count).astype(start.dtype), [count])


@op(infer=_vector_of_start, diff="")
def linspace(start, stop, num: Sizes):
    """Out = Num values from Start to Stop inclusive; Num must be a host value, or count rows."""
    if isinstance(num, RowCounts):
        return _spaced(start, stop, *sizes_of(num))
    count = int(concrete_scalar(num, "linspace: Num"))
    if count == 1:
        return start.reshape(1)
    step = (stop.reshape(()) - start.reshape(())) / (count - 1)
    return start.reshape(()) + step * jnp.arange(count).astype(start.dtype)


@op(infer=_vector_of_start, diff="")
def logspace(start, stop, num, base, *, dtype: int = 5):
    """Out = Base to the power of Num values from Start to Stop inclusive."""
    count = int(concrete_scalar(num, "logspace: Num"))
    start, stop, base = (jnp.asarray(v).reshape(()).astype(np.float64) for v in (start, stop, base))
    return jnp.power(base, jnp.linspace(start, stop, count)).astype(to_numpy(dtype))


@op()
def eye(*, dtype: int = 5, num_rows: Long, num_columns: Long = -1):
    """Out = the identity matrix [num_rows, num_columns]; -1 columns means as many as rows."""
    return jnp.eye(num_rows, num_columns if num_columns >= 0 else num_rows, dtype=to_numpy(dtype))


@op(lod=None, diff="")
def diag(diagonal):
    """Out [N, N] has Diagonal [N] on its diagonal."""
    return jnp.diag(diagonal.reshape(-1))


@diag.fits
def _(diagonal):
    fitting.rank("Diagonal", diagonal, 1)


@op(lod=None, diff="")
def diag_embed(input, *, offset: int = 0, dim1: int = -2, dim2: int = -1):
    """Out: the last dimension of Input becomes the ``offset``-th diagonal of dimensions (dim1, dim2)."""
    n = input.shape[-1] + abs(offset)
    row = jnp.arange(input.shape[-1]) + max(-offset, 0)
    out = jnp.zeros((*input.shape[:-1], n, n), input.dtype).at[..., row, row + offset].set(input)
    return jnp.moveaxis(out, (-2, -1), (dim1, dim2))


def _hot(ids, depth, dtype):
    return (ids[..., None] == jnp.arange(depth, dtype=ids.dtype)).astype(to_numpy(dtype))


def _depth(depth, depth_tensor):
    return depth if depth_tensor is None else int(concrete_scalar(depth_tensor, "one_hot: the depth"))


def _infer_one_hot(op, var_of, lead):
    x = var_of(op.inputs["X"][0])
    depth = -1 if op.inputs.get("depth_tensor") else int(op.attrs.get("depth", -1))
    info = VarInfo((*lead(tuple(x.shape)), depth), int(op.attrs.get("dtype", FP32)), x.lod_level)
    return outputs_like(op, "Out", info)


@op(
    slots={"depth_tensor": "depth_tensor"},
    rows=Wise("x"),
    diff="",
    infer=lambda op, var_of: _infer_one_hot(op, var_of, lambda s: s[:-1]),
)
def one_hot(x, depth_tensor=None, *, depth: int = -1, dtype: int = 5, allow_out_of_range: bool = False):
    """Out[.., j] = 1 where X[.., 0] == j; ids outside [0, depth), if allowed, give a row of zeros."""
    del allow_out_of_range
    return _hot(x.reshape(x.shape[:-1]), _depth(depth, depth_tensor), dtype)


@one_hot.fits
def _(x):
    fitting.within("the rank of X", len(x.shape), 2)


@one_hot.check
def _(x, depth_tensor=None, *, depth, allow_out_of_range):
    return [] if allow_out_of_range else [Demand("x", x, 0, _depth(depth, depth_tensor))]


@op(
    slots={"depth_tensor": "depth_tensor"},
    rows=Wise("x"),
    diff="",
    infer=lambda op, var_of: _infer_one_hot(op, var_of, lambda s: s),
)
def one_hot_v2(x, depth_tensor=None, *, depth: int = -1, dtype: int = 5, allow_out_of_range: bool = False):
    """Out[.., j] = 1 where X[..] == j; ids outside [0, depth), if allowed, give a row of zeros."""
    del allow_out_of_range
    return _hot(x, _depth(depth, depth_tensor), dtype)


@one_hot_v2.check
def _(x, depth_tensor=None, *, depth, allow_out_of_range):
    return [] if allow_out_of_range else [Demand("x", x, 0, _depth(depth, depth_tensor))]


@op(rows=None)
def tril_triu(x, *, diagonal: int = 0, lower: bool):
    """Out = the lower (or upper) triangle of the last two dimensions of X, zeros elsewhere."""
    return (jnp.tril if lower else jnp.triu)(x, diagonal)


@tril_triu.grad
def _(d_out, *, diagonal, lower):
    return (jnp.tril if lower else jnp.triu)(d_out, diagonal)


@op(out="Out*", lod=None, rows=None)
def meshgrid(x: list):
    """Out[i] = X[i] (a vector) broadcast over the grid of all X."""
    return list(jnp.meshgrid(*[v.reshape(-1) for v in x], indexing="ij"))


@meshgrid.grad
def _(x: list[Meta], d_out):
    def along(i):
        return tuple(j for j in range(len(x)) if j != i)

    return [jnp.sum(d, axis=along(i)).reshape(m.shape) for i, (m, d) in enumerate(zip(x, d_out, strict=True))]
