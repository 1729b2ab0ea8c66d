"""Factorisations of matrices and triangular systems, by the textbook loops; signs and pivots are those of LAPACK."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from math import prod

from fluidjax.export.c.kernel import Kernel
from fluidjax.export.c.rules import kernel
from fluidjax.export.c.types import c_type, short
from fluidjax.export.graph import Node


@contextlib.contextmanager
def _matrices(k: Kernel, node: Node, names: str) -> Iterator[None]:
    """A loop over the matrices of a batch, with pointers to the elements of inputs and outputs under their names."""
    count = prod(node.ins[0].shape[:-2])
    words = {name: value for name, value in zip(names.split(), [*node.ins, *node.outs], strict=True)}
    pointers = {name: k.target(v) if v in node.outs else k.pointer(v) for name, v in words.items()}
    with k.block(f"for (long batch = 0; batch < {count}; ++batch)"):
        for name, value in words.items():
            const = "" if value in node.outs else "const "
            step = value.size // max(count, 1)
            k.line(f"{const}{c_type(value.dtype)} *{name} = {pointers[name]} + batch * {step};")
        yield


def _floats(node: Node) -> str:
    kinds = {v.dtype.name for v in node.ins}
    return "" if kinds <= {"float32", "float64"} else f"of {' and '.join(sorted(kinds))}"


@kernel("cholesky", refuses=_floats)
def cholesky(k: Kernel, node: Node) -> None:
    """L of A = L L^T from A's lower triangle; NaN where A is not positive definite."""
    out, n, t = node.outs[0], node.ins[0].shape[-1], c_type(node.outs[0].dtype)
    with _matrices(k, node, "A L"):
        k.line(f"int definite = 1; memset(L, 0, {n * n} * sizeof({t}));")
        with k.block(f"for (long j = 0; j < {n} && definite; ++j)"):
            with k.block(f"for (long i = j; i < {n}; ++i)"):
                k.line(f"{t} rest = A[i * {n} + j];")
                k.line(f"for (long p = 0; p < j; ++p) rest -= L[i * {n} + p] * L[j * {n} + p];")
                k.line("if (i == j) definite = rest > 0;")
                k.line(f"L[i * {n} + j] = i == j ? ({t})sqrt(rest) : rest / L[j * {n} + j];")
        k.line(f"for (long i = 0; !definite && i < {n}; ++i)")
        k.line(f"  for (long j = 0; j <= i; ++j) L[i * {n} + j] = {short(out.dtype)}_NAN;")


@kernel("triangular_solve", refuses=_floats)
def triangular_solve(k: Kernel, node: Node) -> None:
    """X of op(A) X = B, or of X op(A) = B, by substitution; op transposes or not."""
    p, a, out = node.params, node.ins[0], node.outs[0]
    n, (rows, columns), t = a.shape[-1], out.shape[-2:], c_type(out.dtype)
    # X op(A) = B is op(A)^T X^T = B^T: each row of B is a right side then, as each column is else.
    flipped = bool(p["transpose_a"]) == bool(p["left_side"])
    entry = f"A[j * {n} + i]" if flipped else f"A[i * {n} + j]"
    diagonal = "" if p["unit_diagonal"] else f" / A[i * {n + 1}]"
    at, sides = (f"* {columns} + side", columns) if p["left_side"] else (f"+ side * {columns}", rows)
    forward = bool(p["lower"]) != flipped
    with _matrices(k, node, "A B X"), k.block(f"for (long side = 0; side < {sides}; ++side)"):
        with k.block(f"for (long step = 0; step < {n}; ++step)"):
            k.line(f"const long i = {'step' if forward else f'{n - 1} - step'};")
            k.line(f"{t} rest = B[i {at}];")
            bounds = "long j = 0; j < i; ++j" if forward else f"long j = i + 1; j < {n}; ++j"
            k.line(f"for ({bounds}) rest -= {entry} * X[j {at}];")
            k.line(f"X[i {at}] = rest{diagonal};")


@kernel("lu", refuses=_floats)
def lu(k: Kernel, node: Node) -> None:
    """L and U of A's rows in another order, the rows exchanged, and the order, with the largest pivots."""
    source, (out, pivots, order) = node.ins[0], node.outs
    (m, n), t = source.shape[-2:], c_type(out.dtype)
    with _matrices(k, node, "A U pivots order"):
        k.line(f"memcpy(U, A, {m * n} * sizeof({t}));")
        k.line(f"for (long i = 0; i < {m}; ++i) order[i] = ({c_type(order.dtype)})i;")
        with k.block(f"for (long j = 0; j < {min(m, n)}; ++j)"):
            k.line("long best = j;")
            k.line(f"for (long i = j + 1; i < {m}; ++i) if (fabs(U[i * {n} + j]) > fabs(U[best * {n} + j])) best = i;")
            k.line(f"pivots[j] = ({c_type(pivots.dtype)})best;")
            with k.block("if (best != j)"):
                k.line(f"const {c_type(order.dtype)} row = order[j]; order[j] = order[best]; order[best] = row;")
                with k.block(f"for (long c = 0; c < {n}; ++c)"):
                    k.line(f"const {t} swap = U[j * {n} + c];")
                    k.line(f"U[j * {n} + c] = U[best * {n} + c]; U[best * {n} + c] = swap;")
            with k.block(f"if (U[j * {n} + j] != 0) for (long i = j + 1; i < {m}; ++i)"):
                k.line(f"const {t} factor = U[i * {n} + j] /= U[j * {n} + j];")
                k.line(f"for (long c = j + 1; c < {n}; ++c) U[i * {n} + c] -= factor * U[j * {n} + c];")


def _unpivoted(node: Node) -> str:
    return "with pivots" if node.params.get("pivoting") else _floats(node)


@kernel("qr", refuses=_unpivoted)
def qr(k: Kernel, node: Node) -> None:
    """Q and R of A by reflections, each of which turns a column onto minus the sign of its first element."""
    source, (q, r) = node.ins[0], node.outs
    (m, n), columns, rows, t = source.shape[-2:], q.shape[-1], r.shape[-2], c_type(q.dtype)
    work, scale = k.temporary(q.dtype.name, m * n), k.temporary(q.dtype.name, min(m, n))
    with _matrices(k, node, "A Q R"):
        k.line(f"memcpy({work}, A, {m * n} * sizeof({t}));")
        with k.block(f"for (long j = 0; j < {min(m, n)}; ++j)"):
            k.line(f"double below = 0; for (long i = j + 1; i < {m}; ++i) below += "
                   f"(double){work}[i * {n} + j] * {work}[i * {n} + j];")  # fmt: skip
            k.line(f"const {t} first = {work}[j * {n} + j];")
            k.line(f"{scale}[j] = 0;")
            k.line("if (below == 0) continue;")
            k.line(f"const {t} turned = ({t})(!signbit(first) ? -sqrt((double)first * first + below) "
                   ": sqrt((double)first * first + below));")  # fmt: skip
            k.line(f"{scale}[j] = (turned - first) / turned;")
            k.line(f"for (long i = j + 1; i < {m}; ++i) {work}[i * {n} + j] /= first - turned;")
            k.line(f"{work}[j * {n} + j] = turned;")
            _reflect(k, work, n, m, f"{scale}[j]", work, n, "j + 1", n)
        k.line(f"for (long i = 0; i < {rows}; ++i) for (long c = 0; c < {n}; ++c)")
        k.line(f"  R[i * {n} + c] = c < i ? 0 : {work}[i * {n} + c];")
        k.line(f"for (long i = 0; i < {m}; ++i) for (long c = 0; c < {columns}; ++c) Q[i * {columns} + c] = i == c;")
        with k.block(f"for (long j = {min(m, n) - 1}; j >= 0; --j)"):
            _reflect(k, work, n, m, f"{scale}[j]", "Q", columns, "0", columns)


def _reflect(k: Kernel, held: str, step: int, m: int, scale: str, on: str, width: int, first: str, end: int) -> None:
    """on -= scale v (v^T on), with v = 1 at row j and, below it, column j of ``held``."""
    with k.block(f"for (long c = {first}; c < {end}; ++c)"):
        k.line(f"double sum = {on}[j * {width} + c];")
        k.line(f"for (long i = j + 1; i < {m}; ++i) sum += (double){held}[i * {step} + j] * {on}[i * {width} + c];")
        k.line(f"sum *= {scale}; {on}[j * {width} + c] -= sum;")
        k.line(f"for (long i = j + 1; i < {m}; ++i) {on}[i * {width} + c] -= sum * {held}[i * {step} + j];")
