"""Matrix and vector products."""

from __future__ import annotations

from math import prod
from typing import Any

import jax.numpy as jnp

from lowering.engine.shapes.infer_rules import by_rule
from lowering.loops.contractions import contraction, over_rows
from lowering.ops import fitting
from lowering.ops.shared import transpose_of
from lowering.program import PADDLE_2_5
from lowering.ragged.used import of_used_rows
from lowering.registry import WISE, Wise, op
from lowering.values import LoDArray, Meta

# Products by weights of so many elements take long enough for a choice of how many rows to compute.
_WORTH_A_CHOICE = 1 << 15


def _flat2(x, split: int):
    """X as a matrix: its first ``split`` dims are rows."""
    if x.ndim == 2 and split == 1:
        return x
    return x.reshape(prod(x.shape[:split]), prod(x.shape[split:]))


def _product(shapes, attr):
    x, y, split, columns = shapes["X"], shapes["Y"], attr("x_num_col_dims"), attr("y_num_col_dims")
    if not (0 < split < len(x) and 0 < columns < len(y) and min(y) > 0 and 0 not in x[split:]):
        return None
    known, rows = prod(d for d in x[split:] if d > 0), prod(y[:columns])
    fits = rows % known == 0 if -1 in x[split:] else rows == known  # the run knows what unknown dims multiply to
    return {"Out": x[:split] + y[columns:]} if fits else None


@op(vendor="use_mkldnn scale_x scale_y scale_out force_fp32_output", rows=Wise("x"), infer=by_rule(_product))
def mul(x: LoDArray, y, *, x_num_col_dims: int = 1, y_num_col_dims: int = 1, ctx):
    """Out = X Y, X flattened to a matrix after ``x_num_col_dims`` dims and Y after ``y_num_col_dims``."""
    rows, weight = _flat2(x.data, x_num_col_dims), _flat2(y, y_num_col_dims)
    few = x_num_col_dims == 1 and ctx.platform == "cpu" and weight.size >= _WORTH_A_CHOICE
    out = of_used_rows(lambda rows: rows @ weight, rows, x.nrows if few else None)
    return out.reshape(x.shape[:x_num_col_dims] + y.shape[y_num_col_dims:])


@mul.fits
def _(x, y, *, x_num_col_dims, y_num_col_dims):
    fitting.within("the number of dims of X", len(x.shape), x_num_col_dims + 1)
    fitting.within("the number of dims of Y", len(y.shape), y_num_col_dims + 1)


def _mul_grads(x, y, dout, nx, ny):
    xm, ym = _flat2(x, nx), _flat2(y, ny)
    d = dout.reshape(xm.shape[0], ym.shape[1])
    return (d @ ym.T).reshape(x.shape), over_rows(xm, d).reshape(y.shape)


@mul.grad
def _(x, y, d_out, *, x_num_col_dims, y_num_col_dims):
    return _mul_grads(x, y, d_out, x_num_col_dims, y_num_col_dims)


@contraction("mul_grad", "Y@GRAD", ("X", "Out@GRAD"))
def _(x, d_out, y, attrs):
    rows = _flat2(x, int(attrs.get("x_num_col_dims", 1)))
    columns = prod(y.shape[int(attrs.get("y_num_col_dims", 1)) :])
    return rows, d_out if d_out.shape == (rows.shape[0], columns) else d_out.reshape(rows.shape[0], columns)


@mul.grad_grad(out="DX DY DDOut", rows=None)
def _(x, y, dout, ddx=None, ddy=None, *, x_num_col_dims, y_num_col_dims):
    ddx = jnp.zeros_like(x) if ddx is None else ddx
    ddy = jnp.zeros_like(y) if ddy is None else ddy
    nx, ny = x_num_col_dims, y_num_col_dims
    dx, _ = _mul_grads(x, ddy, dout, nx, ny)
    _, dy = _mul_grads(ddx, y, dout, nx, ny)
    ddout = _flat2(ddx, nx) @ _flat2(y, ny) + _flat2(x, nx) @ _flat2(ddy, ny)
    return dx, dy, ddout.reshape(dout.shape)


def _matrix(x, column: bool, transposed: bool):
    """A vector becomes one row (X) or one column (Y); then the last two dims are swapped if wanted."""
    if x.ndim == 1:
        x = x[:, None] if column else x[None, :]
    return jnp.swapaxes(x, -1, -2) if transposed else x


def _merge_batch(x, y):
    """Batches of equal count and unequal dims are paired in order, with X's dims kept."""
    if x.ndim > 2 and y.ndim > 2 and x.shape[:-2] != y.shape[:-2]:
        y = y.reshape(x.shape[:-2] + y.shape[-2:])
    return x, y


def _heads(x, y, head_number: int):
    """X [.., M, K] by Y [.., K / h or K, N]: K is cut into h heads and the h products stand side by side."""
    k = x.shape[-1] // head_number
    columns = y.shape[-1] // head_number
    pieces = []
    for h in range(head_number):
        part = x[..., h * k : (h + 1) * k]
        if y.shape[-2] == x.shape[-1]:
            pieces.append(part @ y[..., h * k : (h + 1) * k, :])
        else:
            pieces.append(part @ y[..., h * columns : (h + 1) * columns])
    return jnp.concatenate(pieces, axis=-1)


def _products(shapes, attr):
    """Of known and unknown dims: the batches are X's if it has any, and what is multiplied away may be unknown."""
    x, y = shapes["X"], shapes["Y"]
    if attr("fused_transpose_Out") or attr("head_number") != 1 or not x or not y or 0 in (*x, *y):
        return None
    row, column = (1, *x)[-2:], (*y, 1)[-2:] if len(y) == 1 else y[-2:]
    (rows, inner), (depth, columns) = (
        v[::-1] if attr(f"transpose_{slot}") else v for slot, v in (("X", row), ("Y", column))
    )
    batches = [v[:-2] for v in (x, y) if len(v) > 2] or [()]
    fitting.same("what is multiplied away", (inner,), (depth,))
    fitting.same("batches", batches[0], batches[-1])
    ends = [d for d, vector in ((rows, len(x) == 1), (columns, len(y) == 1)) if d != 1 or not vector]
    return {"Out": (*batches[0], *ends) or (1,)}


def _row_by_row(attrs: Any, ndim: int) -> Wise:
    """Rows are batches where X has more dims than a matrix: Y's batches are rows then, too, or Y is one matrix."""
    return WISE if ndim > 2 and not attrs["fused_transpose_Out"] else Wise("x")


@op(
    vendor="use_mkldnn use_quantizer Scale_x Scale_y Scale_out force_fp32_output",
    grad="vjp",
    reads="x y",
    rows=_row_by_row,
    infer=by_rule(_products),
)
def matmul(
    x,
    y,
    *,
    transpose_X: bool = False,
    transpose_Y: bool = False,
    alpha: float = 1.0,
    fused_reshape_Out: list[int] = (),
    fused_transpose_Out: list[int] = (),
    head_number: int = 1,
):
    """Out = alpha * op(X) op(Y), batched over leading dimensions; a vector X is a row, a vector Y a column.

    The result of two vectors is [1]. ``head_number`` > 1 multiplies column groups of X (heads) separately.
    """
    x_vector, y_vector = x.ndim == 1, y.ndim == 1
    a, b = _merge_batch(_matrix(x, False, transpose_X), _matrix(y, True, transpose_Y))
    out = a @ b if head_number == 1 else _heads(a, b, head_number)
    if alpha != 1.0:
        out = out * alpha
    if x_vector and out.shape[-2] == 1:
        out = out.squeeze(-2)
    if y_vector and out.shape[-1] == 1:
        out = out.squeeze(-1)
    if out.ndim == 0:
        out = out.reshape(1)
    if fused_transpose_Out:
        out = jnp.transpose(out, fused_transpose_Out).reshape(fused_reshape_Out)
    return out


@contraction("matmul_grad", "Y@GRAD", ("X", "Out@GRAD"))
def _(x, d_out, y, attrs):
    plain = attrs.get("alpha", 1.0) == 1.0 and attrs.get("head_number", 1) == 1 and not attrs.get("fused_reshape_Out")
    if not plain or attrs.get("transpose_X", False) or x.ndim < 2 or y.ndim != 2 or d_out.ndim != x.ndim:
        return None
    rows, columns = (v if v.ndim == 2 else v.reshape(-1, v.shape[-1]) for v in (x, d_out))
    return (columns, rows) if attrs.get("transpose_Y", False) else (rows, columns)


@op()
def bmm(x, y):
    """Out [B, M, N] = X [B, M, K] Y [B, K, N]."""
    return x @ y


@bmm.grad
def _(x, y, d_out):
    return d_out @ jnp.swapaxes(y, 1, 2), jnp.swapaxes(x, 1, 2) @ d_out


@op(grad="vjp", reads="input x y", vendor="use_mkldnn", lod={"Out": "input"})
def addmm(input, x, y, *, Alpha: float = 1.0, Beta: float = 1.0):
    """Out = Beta * Input + Alpha * X Y, Input broadcast to the product."""
    return Beta * input + Alpha * (x @ y)


@op(lod=None, rows=WISE)
def dot(x, y, *, ctx):
    """Out = sum of X * Y over the last dimension, which is kept with size 1 before Paddle 2.5."""
    return jnp.sum(x * y, axis=-1, keepdims=ctx.release < PADDLE_2_5, dtype=x.dtype)


@dot.fits
def _(x, y):
    fitting.rank("X", x, 1, 2)
    fitting.same("the dims of X and Y", x.shape, y.shape)


@dot.grad
def _(x, y, d_out):
    each = d_out.reshape(*x.shape[:-1], 1)
    return each * y, each * x


@op(lod=None, grad="vjp", reads="x y")
def kron(x, y):
    """Out = Kronecker product of X and Y, the shorter shape padded with leading ones."""
    return jnp.kron(x, y)


@op(grad="vjp", reads="x y")
def cross(x, y, *, dim: int = 9):
    """Out = cross product along ``dim``, a dim of size 3 (default 9: the first one)."""
    axis = x.shape.index(3) if dim == 9 else dim
    return jnp.cross(x, y, axis=axis)


@cross.fits
def _(x, y, *, dim):
    fitting.same("the dims of X and Y", x.shape, y.shape)
    if dim != 9:
        fitting.axis_of("dim", dim, len(x.shape))
        fitting.dim("X", x, dim, 3)


@op(rows=Wise("x y"))
def bilinear_tensor_product(x, y, weight, bias=None):
    """Out[b, i] = X[b] Weight[i] Y[b] + Bias[0, i]; X [B, M], Y [B, N], Weight [K, M, N]."""
    out = jnp.einsum("bm,kmn,bn->bk", x, weight, y)
    return out if bias is None else out + bias


@bilinear_tensor_product.fits
def _(x, y, weight, bias=None):
    fitting.rank("X", x, 2)
    fitting.rank("Y", y, 2)
    fitting.rank("Weight", weight, 3)
    fitting.same("the widths of X and Y, and the last dims of Weight", (x.shape[1], y.shape[1]), weight.shape[1:])
    if bias is not None:
        fitting.same("Bias and [1, the first dim of Weight]", bias.shape, (1, weight.shape[0]))


@bilinear_tensor_product.grad
def _(x, y, weight, d_out):
    d_x = jnp.einsum("bk,kmn,bn->bm", d_out, weight, y)
    d_y = jnp.einsum("bk,kmn,bm->bn", d_out, weight, x)
    d_weight = jnp.einsum("bk,bm,bn->kmn", d_out, x, y)
    return d_x, d_y, d_weight, jnp.sum(d_out, axis=0, keepdims=True)


def _circular(x, y):
    """Windows of X around each column: [B, M, N], N odd."""
    half = y.shape[1] // 2
    columns = (jnp.arange(x.shape[1])[:, None] + jnp.arange(y.shape[1])[None, :] - half) % x.shape[1]
    return jnp.asarray(x)[:, columns]


@op(grad="vjp", reads="x y", rows=None)
def conv_shift(x, y):
    """Out[b, i] = sum over j of X[b, (i + j - N // 2) mod M] * Y[b, j]: circular convolution, N odd."""
    return jnp.sum(_circular(x, y) * y[:, None, :], axis=2)


def _row_norm(x):
    """[n, 1]: the norm of each row, at least 1e-4 as in Fluid: a row of zeros is like no other."""
    return jnp.maximum(jnp.sqrt(jnp.sum(x * x, axis=tuple(range(1, x.ndim)))), 1e-4).reshape(-1, 1)


@op(out="Out XNorm~ YNorm~", vendor="@ALL_KERNELS_MUST_COMPUTE_RUNTIME_SHAPE@", rows=WISE)
def cos_sim(x, y):
    """Out[n, 0] = X[n] . Y[n] / (|X[n]| |Y[n]|); Y may have one row for all. Norms are [n, 1]."""
    x_norm, y_norm = _row_norm(x), _row_norm(y)
    product = jnp.sum(x * y, axis=tuple(range(1, x.ndim))).reshape(-1, 1)
    return product / (x_norm * y_norm), x_norm, y_norm


@cos_sim.grad
def _(x, y, out, x_norm, y_norm, d_out):
    column = (-1,) + (1,) * (x.ndim - 1)
    xn, yn, z, g = (v.reshape(column) for v in (x_norm, y_norm, out, d_out))
    d_x = g * (y / (xn * yn) - z * x / (xn * xn))
    d_y = g * (x / (xn * yn) - z * y / (yn * yn))
    if y.shape[0] == 1 and x.shape[0] != 1:
        d_y = jnp.sum(d_y, axis=0, keepdims=True)
    return d_x, d_y


@op(grad=None, lod=None, renamed={"dim1": "axis1", "dim2": "axis2"})
def trace(input, *, offset: int = 0, dim1: int = -2, dim2: int = -1):
    """Out = sum of the diagonals of Input in the planes (dim1, dim2); [1] for a matrix.

    ``offset`` moves along the later of the two dims, in whichever order they are given.
    """
    return _trace(input, offset, dim1, dim2)


def _trace(x, offset, dim1, dim2):
    first, second = sorted((dim1 % x.ndim, dim2 % x.ndim))
    out = jnp.trace(x, offset=offset, axis1=first, axis2=second, dtype=x.dtype)
    return out.reshape(1) if out.ndim == 0 else out


@trace.grad
def _(input: Meta, d_out, *, offset, dim1, dim2):
    return transpose_of(lambda x: _trace(x, offset, dim1, dim2), input, d_out)
