"""Functions of most primitives, for what writes them in other languages."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


def primitives(x, y, n, m, flag):
    """Most primitives, on floats x, y [3, 4] (y positive), integers n [5] (m: of all sizes), and flags [3, 4]."""
    floats = [
        f(x)
        for f in (
            jnp.exp,
            jnp.tanh,
            lax.logistic,
            jnp.sin,
            jnp.floor,
            jnp.round,
            lax.erf,
            jnp.sign,
            jnp.abs,
            lax.erf_inv,
            jnp.expm1,
            lax.square,
            lax.bessel_i0e,
            lambda v: lax.bessel_i1e(30 * v),
            jnp.isfinite,
        )
    ]
    floats += [f(y) for f in (jnp.log, jnp.log1p, jnp.sqrt, lax.rsqrt, lax.lgamma, lax.digamma, jnp.cbrt)]
    floats += [f(x, y) for f in (jnp.maximum, jnp.minimum, lax.rem, lax.pow, jnp.arctan2)]
    whole = [
        lax.div(m, n),
        lax.rem(m, n),
        m * m,
        m + m,
        -m,
        jnp.abs(m),
        lax.shift_left(m, n),
        jnp.sign(m),
        lax.shift_right_arithmetic(m, n),
        lax.shift_right_logical(m, n),
        m & n,
        m | n,
        m ^ n,
        ~m,
    ]
    other = [x.astype("int32"), (x * 1e30).astype("int64"), (x * 1e30).astype("uint8"), m.astype("float32"), m != 0]
    views = [
        x.T @ y,
        jnp.flip(x, 1) @ y.T,
        x[::2, 1:],
        jnp.flip(x, 0) + 1,
        jnp.tile(x, (2, 3)),
        jnp.where(flag, x, y),
        jnp.pad(x, ((1, 2), (0, 1)), constant_values=7),
        lax.pad(x, np.float32(2), ((-1, 1, 1), (2, -1, 0))),
        jnp.concatenate([x, y * 2, x], 1),
        jnp.stack([x, y], 1),
        jnp.broadcast_to(x[:, None], (3, 2, 4)) * 2,
    ]
    reduced = [f(x) for f in (jnp.sum, jnp.max, jnp.prod)] + [
        jnp.sum(x, 0),
        jnp.min(x, 1),
        jnp.all(flag),
        jnp.any(flag, 1),
        jnp.argmax(x, 1),
        jnp.argmin(x, 0),
        jnp.sum(m),
        jnp.sum(jnp.flip(x, 0) ** 2),
    ]
    running = [
        jnp.cumsum(x, 1),
        lax.cumsum(x, 0, reverse=True),
        jnp.cumprod(y, 0),
        lax.cummax(x, 1),
        lax.cumlogsumexp(x, 1),
    ]
    order = [
        *lax.sort((x, y), dimension=1, num_keys=1),
        jnp.sort(m),
        *lax.top_k(x, 3),
        jnp.argsort(n),
        *lax.sort((n, m), num_keys=2),
    ]
    picked = [
        x[n % 3],
        x.at[n % 3].add(1.5),
        x.at[jnp.array([7, 1])].set(9.0),
        y.at[n % 3, 0].max(5.0),
        lax.dynamic_slice(x, (n[0], 1), (2, 2)),
        lax.dynamic_update_slice(x, y[:2, :2], (1, n[1])),
        jnp.take(x, jnp.array([5, 0]), 0, mode="fill"),
    ]
    windows = [
        lax.reduce_window(x, np.float32(-np.inf), lax.max, (2, 2), (1, 2), "SAME"),
        lax.reduce_window(x, np.float32(0), lax.add, (2, 2), (1, 1), "VALID"),
    ]
    loops = [
        lax.fori_loop(0, 5, lambda i, c: c.at[i % 3].add(y[1] * i), x),
        lax.while_loop(
            lambda c: c[0] < n.sum(), lambda c: (c[0] + 3, c[2], c[1] + x.sum()), (0, np.float32(1), np.float32(2))
        )[1],
        *lax.scan(lambda c, v: (c + v, c * v), x[0], y, reverse=True),
        lax.switch(n[0], [lambda v: v, lambda v: v * 2, lambda v: v - 1], x),
        lax.cond(flag[0, 0], lambda: x, lambda: y),
    ]
    key = jax.random.fold_in(jax.random.key(5), 3)
    drawn = [
        jax.random.uniform(key, (3, 5)),
        jax.random.normal(jax.random.split(key)[1], (7,)),
        jax.random.bits(key, (4,)),
    ]
    return (*floats, *whole, *other, *views, *reduced, *running, *order, *picked, *windows, *loops, *drawn)


def factorisations(a, b):
    """Factors of matrices a [2, 3, 3], and of these with a column more; systems with b."""
    square = a @ jnp.swapaxes(a, 1, 2) + jnp.eye(3, dtype=a.dtype)
    lower, wide = jnp.linalg.cholesky(square), jnp.concatenate([a, a[:, :, :1] + 1], 2)
    solve = lambda **how: lax.linalg.triangular_solve(lower, b, **how)  # noqa: E731
    return (
        lower,
        *lax.linalg.lu(wide),
        *jnp.linalg.qr(a),
        *jnp.linalg.qr(jnp.swapaxes(wide, 1, 2), mode="complete"),
        *jnp.linalg.qr(wide),
        jnp.linalg.solve(a, b),
        jnp.linalg.inv(square),
        jnp.linalg.slogdet(a)[1],
        jnp.linalg.cholesky(-square),
        *(
            solve(left_side=left, lower=lower, transpose_a=turned, unit_diagonal=unit)
            for left in (True, False)
            for lower in (True, False)
            for turned in (True, False)
            for unit in (True, False)
        ),
        jnp.searchsorted(jnp.sort(a[0, 0]), b[0]),
        jnp.searchsorted(jnp.arange(5), jnp.arange(1, 4), side="right"),
        *(
            jnp.searchsorted(
                jnp.array([-jnp.inf, -0.0, 0.0, 1.0, jnp.nan], a.dtype),
                jnp.array([0.0, -0.0, jnp.nan], a.dtype),
                side=side,
            )
            for side in ("left", "right")
        ),
    )


def spectra(x, a):
    """Transforms, singular values, and what the vectors of factors give."""
    u, s, vt = jnp.linalg.svd(x, full_matrices=False)
    values, vectors = jnp.linalg.eigh(a @ jnp.swapaxes(a, 1, 2))
    there = jnp.fft.rfft(x)
    return (
        (u * s) @ vt,
        s,
        jnp.linalg.svd(x, compute_uv=False),
        values,
        jnp.abs(vectors),
        there.real,
        there.imag,
        jnp.fft.irfft(there * 2),
        jnp.abs(jnp.fft.fft2(x)),
        jnp.fft.ifft(lax.complex(x, x)).imag,
    )


X = np.array([[0.5, -0.25, 0.75, -0.9], [0.1, 0.9, -0.5, 0.3], [-0.7, 0.5, 0.2, 0.99]], "float32")
Y = np.array([[2, 1, 0.5, 3], [1, 2, 4, 1], [0.1, 5, 1, 7]], "float32")
N = np.array([1, 0, 70, -1, 3])
M = np.array([7, 8, -5, np.iinfo(np.int64).min, 2**40])
FLAGS = X > 0
MATRICES = (
    np.array([[[2, 0.5, -1], [-3, 1, 0.25], [0.5, 4, 1]], [[0, 1, 2], [1, 0, -1], [3, 0.5, 1]]], "float32"),
    np.array([[[1, 2, 0.5], [0, -1, 3], [2, 2, 1]], [[-1, 1, 1], [2, 0, 0.5], [1, 3, -2]]], "float32"),
)


def convolutions(x, w, v, d):
    """Convolutions of every form, with their gradients."""
    both = lambda f, a, b: (f(a, b), *jax.grad(lambda a, b: (f(a, b) ** 2).sum(), (0, 1))(a, b))  # noqa: E731
    dims = ("NCHW", "OIHW", "NCHW")
    return (
        *both(lambda a, b: lax.conv_general_dilated(a, b, (2, 1), ((1, 0), (2, 1)), dimension_numbers=dims), x, w),
        *both(
            lambda a, b: lax.conv_general_dilated(
                a, b, (1, 1), "SAME", rhs_dilation=(2, 2), dimension_numbers=dims, feature_group_count=2
            ),
            x,
            v,
        ),
        *both(
            lambda a, b: lax.conv_general_dilated(
                a, b, (1, 1), ((1, 0), (0, 2)), lhs_dilation=(2, 3), dimension_numbers=dims
            ),
            x,
            w,
        ),
        *both(lambda a, b: jnp.einsum("bij,bkj->bik", a, b), d, d[:, :2] * 2),
        d.reshape(-1, 300) @ d.reshape(300, -1),
    )
