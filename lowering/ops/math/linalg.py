"""Matrix decompositions and inverses; matrices are in the last two dimensions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from lowering.registry import op


@op(grad="vjp", reads="x")
def cholesky(x, *, upper: bool = False):
    """Out = the lower (upper) triangular L with L L^T = X."""
    out = jnp.linalg.cholesky(x)
    return jnp.swapaxes(out, -1, -2) if upper else out


@op(slots={"input": "Input"}, out="Output", lod="input")
def inverse(input):
    """Output = the inverse of Input."""
    return jnp.linalg.inv(input)


@inverse.grad
def _(output, d_output):
    transposed = jnp.swapaxes(output, -1, -2)
    return -transposed @ d_output @ transposed


@op(slots={"input": "Input"}, lod=None)
def determinant(input):
    """Out = the determinant of Input."""
    return jnp.linalg.det(input)


@determinant.grad
def _(input, out, d_out):
    return (out * d_out).reshape(*input.shape[:-2], 1, 1) * jnp.swapaxes(jnp.linalg.inv(input), -1, -2)


@op(grad="vjp", reads="x y")
def solve(x, y):
    """Out = the solution of X Out = Y; Y may be vectors."""
    return jnp.linalg.solve(x, y[..., None])[..., 0] if y.ndim == x.ndim - 1 else jnp.linalg.solve(x, y)


@op(grad="vjp", reads="x y")
def triangular_solve(x, y, *, upper: bool = True, transpose: bool = False, unitriangular: bool = False):
    """Out = the solution of X Out = Y for triangular X."""
    batch = jnp.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    x, y = jnp.broadcast_to(x, batch + x.shape[-2:]), jnp.broadcast_to(y, batch + y.shape[-2:])
    options = {"lower": not upper, "transpose_a": transpose, "unit_diagonal": unitriangular}
    return jax.lax.linalg.triangular_solve(x, y, left_side=True, **options)


@op(grad="vjp", reads="x")
def matrix_power(x, *, n: int):
    """Out = the n-th power of X, or of its inverse for negative n."""
    return jnp.linalg.matrix_power(x, n)


@op(slots={"input": "Input"}, diff="", lod=None)
def slogdeterminant(input):
    """Out [2, ...] = the sign of the determinant of Input, and the logarithm of its absolute value."""
    return jnp.stack(jnp.linalg.slogdet(input))


@op(diff="", out="U S VH", lod=None)
def svd(x, *, full_matrices: bool = False):
    """X = U diag(S) VH, with S in decreasing order."""
    return tuple(jnp.linalg.svd(x, full_matrices=full_matrices))


@op(diff="", out="Q R", lod=None)
def qr(x, *, mode: str = "reduced"):
    """X = Q R, with orthonormal columns of Q and upper triangular R; mode ``r`` computes no Q."""
    return (None, jnp.linalg.qr(x, mode="r")) if mode == "r" else tuple(jnp.linalg.qr(x, mode=mode))


_EIGEN = {"diff": "", "out": "Eigenvalues Eigenvectors", "lod": None}


@op(**_EIGEN)
def eigh(x, *, UPLO: str = "L"):
    """The eigenvalues, in increasing order, and eigenvectors of a symmetric X, of which one triangle is read."""
    return tuple(jnp.linalg.eigh(x, UPLO=UPLO, symmetrize_input=False))


@op(**_EIGEN)
def eigvalsh(x, *, UPLO: str = "L", is_test: bool = False):
    """The eigenvalues of ``eigh``; eigenvectors are only computed during training, for the gradient."""
    values, vectors = jnp.linalg.eigh(x, UPLO=UPLO, symmetrize_input=False)
    return values, None if is_test else vectors


@op(grad="vjp", reads="x y")
def cholesky_solve(x, y, *, upper: bool = False):
    """Out = the solution of A Out = X, where Y is the lower (upper) Cholesky triangle of A."""
    batch = jnp.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    x, y = jnp.broadcast_to(x, batch + x.shape[-2:]), jnp.broadcast_to(y, batch + y.shape[-2:])
    return jax.scipy.linalg.cho_solve((y, not upper), x)


@op(diff="", lod=None, slots={"tolerance": "TolTensor"})
def matrix_rank(x, tolerance=None, *, tol: float = 0.0, hermitian: bool = False, use_default_tol: bool = True):
    """Out (int32) = the number of singular values of X above the tolerance, by default max(m, n) eps times the largest.

    The tolerance is a tensor or ``tol``.
    """
    found = jnp.abs(jnp.linalg.eigvalsh(x)) if hermitian else jnp.linalg.svd(x, compute_uv=False)
    usual = jnp.finfo(x.dtype).eps * max(x.shape[-2:]) * jnp.max(found, axis=-1)
    least = tolerance if tolerance is not None else usual if use_default_tol else jnp.full_like(usual, tol)
    return jnp.sum(found > least[..., None], axis=-1).astype(np.int32)


@op(out="Out Pivots Infos", diff="", lod=None)
def lu(x):
    """Out = L and U of X = P L U in one matrix; Pivots (int32) = the row that each row is swapped with, from 1 on.

    Infos (int32) = where the diagonal of U has its first zero, from 1 on; 0 where it has none.
    """
    out, found, _ = jax.lax.linalg.lu(x)
    zeros = jnp.diagonal(out, axis1=-2, axis2=-1) == 0
    infos = jnp.where(zeros.any(-1), jnp.argmax(zeros, -1) + 1, 0)
    return out, found + np.int32(1), infos.astype(np.int32)


@op(out="Pmat L U", diff="", lod=None)
def lu_unpack(x, pivots, *, unpack_ludata: bool = True, unpack_pivots: bool = True):
    """P, L and U of what ``lu`` returns; those that are not asked for are None."""
    rows, columns = x.shape[-2:]
    least = min(rows, columns)
    lower = jnp.tril(x[..., :least], -1) + jnp.eye(rows, least, dtype=x.dtype) if unpack_ludata else None
    upper = jnp.triu(x[..., :least, :]) if unpack_ludata else None
    if not unpack_pivots:
        return None, lower, upper
    order = jax.lax.linalg.lu_pivots_to_permutation(pivots.astype(np.int32) - 1, rows)
    return jnp.swapaxes(jax.nn.one_hot(order, rows, dtype=x.dtype), -1, -2), lower, upper


@op(**_EIGEN)
def eig(x):
    """The complex eigenvalues, and eigenvectors of length 1, of any X."""
    return tuple(jnp.linalg.eig(x))


@op(diff="", lod=None)
def eigvals(x):
    """Out = the complex eigenvalues of any X, in the order in which LAPACK finds those of its transpose, as Paddle."""
    return jnp.linalg.eigvals(jnp.swapaxes(x, -1, -2))


@op(out="Solution Residuals? Rank SingularValues", diff="", lod=None)
def lstsq(x, y, *, rcond: float = 0.0, driver: str = "gels"):
    """Solution = the X+ Y that is nearest to X Solution = Y; singular values up to ``rcond`` times the largest are 0.

    ``gels`` takes X to have full rank. Residuals = the sum of squares left in each column of Y, where X is higher than
    it is wide and has full rank. Rank (int32) and SingularValues are those of X, where the driver computes them.
    """
    u, found, vh = jnp.linalg.svd(x, full_matrices=False)
    kept = found > (0 if driver == "gels" else rcond) * found[..., :1]
    inverse = jnp.where(kept, 1 / jnp.where(kept, found, 1), 0)
    solution = jnp.swapaxes(vh, -1, -2) @ (inverse[..., None] * (jnp.swapaxes(u, -1, -2) @ y))
    rank = jnp.sum(kept, -1).astype(np.int32)
    left = jnp.sum((y - x @ solution) ** 2, -2)
    return solution, left, rank, found
