"""Sums, products and extremes over dims; argmax; cumulative results."""

from __future__ import annotations

from math import prod

import numpy as np

from fluidjax.export.c.affine import Affine, Index, address, strides_of
from fluidjax.export.c.kernel import Kernel, merged_nest, probe
from fluidjax.export.c.rules import kernel
from fluidjax.export.c.types import c_type, literal, short
from fluidjax.export.graph import Node

# How many columns are summed side by side, and how many partial sums a row has.
COLUMNS, LANES = 64, 16


def start_of(word: str, dtype: np.dtype) -> str:
    """The neutral element of a reduction."""
    if word in ("sum", "or", "xor"):
        return literal(0, dtype)
    if word in ("prod", "and"):
        return literal(1 if word == "prod" or dtype.kind == "b" else np.array(-1).astype(dtype), dtype)
    if dtype.kind == "f":
        return literal(-np.inf if word == "max" else np.inf, dtype)
    if dtype.kind == "b":
        return "0" if word == "max" else "1"
    return literal(np.iinfo(dtype).min if word == "max" else np.iinfo(dtype).max, dtype)


def combined(word: str, dtype: np.dtype, a: str, b: str) -> str:
    """One step of a reduction."""
    if word in ("max", "min"):
        return f"{word}_{short(dtype)}({a}, {b})"
    operator = {"sum": "+", "prod": "*", "and": "&", "or": "|", "xor": "^"}[word]
    if dtype.kind == "i" and word in ("sum", "prod"):
        unsigned = f"uint{max(8 * dtype.itemsize, 32)}_t"
        return f"({c_type(dtype)})(({unsigned}){a} {operator} ({unsigned}){b})"
    return f"({a} {operator} {b})"


def _word(node: Node) -> str:
    return node.prim.rpartition("_")[2]


@kernel("reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "reduce_and", "reduce_or", "reduce_xor", streams=(0,))
def reduce(k: Kernel, node: Node) -> None:
    """Reduce over ``axes``. Floats are summed in double, in partial sums where they are contiguous."""
    source, axes = node.ins[0], sorted(node.params["axes"])
    kept = [d for d in range(len(source.shape)) if d not in axes]
    out_strides = dict(zip(kept, strides_of([source.shape[d] for d in kept]), strict=True))

    def visit(index: Index) -> str:
        # The output counts as an access too, with a mark on the reduced dims so that they are not merged with others.
        k.accesses.append(address([index[d] for d in kept], [out_strides[d] for d in kept]))
        k.accesses.append(address([index[d] for d in axes], strides_of([source.shape[d] for d in axes])))
        return k.element(source, index)

    out = k.target(node.outs[0])
    groups = probe(k, source.shape, visit)
    outer = [g for g in groups if g[-1] in kept]
    inner = [g for g in groups if g[-1] in axes]
    if outer and groups[-1] is outer[-1] and inner:
        _columns(k, node, outer, inner, out, out_strides)
    else:
        _rows(k, node, outer, inner, out, out_strides)


def _accumulator(word: str, dtype: np.dtype) -> np.dtype:
    return np.dtype(np.float64) if dtype.name == "float32" and word in ("sum", "prod") else dtype


def _rows(k: Kernel, node: Node, outer: list, inner: list, out: str, out_strides: dict[int, int]) -> None:
    """Compute each output in a loop of its own."""
    source, word = node.ins[0], _word(node)
    dtype, shape = source.dtype, source.shape
    wide = _accumulator(word, dtype)
    with merged_nest(k, shape, outer) as index:
        k.line(f"{c_type(wide)} s = {start_of(word, wide)};")
        groups, last = inner, 0
        if inner and word == "sum" and dtype.kind == "f":
            last = prod(shape[d] for d in inner[-1])
            groups = inner[:-1] if last >= 2 * LANES else inner
        with merged_nest(k, shape, groups) as rest:
            at = [a + b for a, b in zip(index, rest, strict=True)]
            if groups is inner:
                k.line(f"s = {combined(word, wide, 's', f'({c_type(wide)}){k.element(source, at)}')};")
            else:
                _lanes(k, node, at, inner[-1][-1], last)
        k.line(f"{out}[{address([index[d] for d in out_strides], list(out_strides.values()))}] = ({c_type(dtype)})s;")


def _lanes(k: Kernel, node: Node, index: list[Affine], dim: int, count: int) -> None:
    """Reduce a row in LANES partial results, which compilers compute side by side."""
    source = node.ins[0]
    t, u, lanes = k.name("t"), k.name("u"), k.name("l")
    k.line(f"{c_type(source.dtype)} {lanes}[{LANES}] = {{0}};")
    with k.block(f"for (long {t} = 0; {t} < {count // LANES}; ++{t})"):
        at = [*index]
        at[dim] = index[dim] + Affine({t: LANES}) + u
        k.line(f"for (long {u} = 0; {u} < {LANES}; ++{u}) {lanes}[{u}] += {k.element(source, at)};")
    k.line(f"for (long {u} = 0; {u} < {LANES}; ++{u}) s += {lanes}[{u}];")
    if count % LANES:
        at = [*index]
        at[dim] = index[dim] + u
        k.line(f"for (long {u} = {count - count % LANES}; {u} < {count}; ++{u}) s += {k.element(source, at)};")


def _columns(k: Kernel, node: Node, outer: list, inner: list, out: str, out_strides: dict[int, int]) -> None:
    """Reduce COLUMNS neighbouring outputs together, row by row."""
    source, word = node.ins[0], _word(node)
    dtype, shape = source.dtype, source.shape
    wide = _accumulator(word, dtype)
    width, dim = prod(shape[d] for d in outer[-1]), outer[-1][-1]
    with merged_nest(k, shape, outer[:-1]) as index:
        b, n, u, s = k.name("b"), k.name("n"), k.name("u"), k.name("s")
        with k.block(f"for (long {b} = 0; {b} < {width}; {b} += {COLUMNS})"):
            k.line(f"const long {n} = {width} - {b} < {COLUMNS} ? {width} - {b} : {COLUMNS};")
            k.line(f"{c_type(wide)} {s}[{COLUMNS}];")
            k.line(f"for (long {u} = 0; {u} < {n}; ++{u}) {s}[{u}] = {start_of(word, wide)};")
            with merged_nest(k, shape, inner) as rest:
                at = [x + y for x, y in zip(index, rest, strict=True)]
                at[dim] = at[dim] + b + u
                step = combined(word, wide, f"{s}[{u}]", f"({c_type(wide)}){k.element(source, at)}")
                k.line(f"for (long {u} = 0; {u} < {n}; ++{u}) {s}[{u}] = {step};")
            where = [index[d] + (Affine.of(b) + u if d == dim else 0) for d in out_strides]
            to = address(where, list(out_strides.values()))
            k.line(f"for (long {u} = 0; {u} < {n}; ++{u}) {out}[{to}] = ({c_type(dtype)}){s}[{u}];")


@kernel("argmax", "argmin", streams=(0,))
def argmax(k: Kernel, node: Node) -> None:
    """The first index of the largest (smallest) element; of the first NaN if there is one."""
    source, (axis,) = node.ins[0], node.params["axes"]
    out, dtype = k.target(node.outs[0]), c_type(source.dtype)
    operator = ">" if node.prim == "argmax" else "<"
    kept = [n for d, n in enumerate(source.shape) if d != axis]
    with k.nest(kept) as index:
        at = [*index[:axis], Affine(), *index[axis:]]
        k.line(f"{dtype} best = {k.element(source, at)};")
        k.line("long found = 0;")
        with k.block(f"for (long j = 1; j < {source.shape[axis]}; ++j)"):
            at[axis] = Affine.of("j")
            k.line(f"const {dtype} x = {k.element(source, at)};")
            k.line(f"if (x {operator} best || (x != x && best == best)) {{ best = x; found = j; }}")
        k.line(f"{out}[{address(index, strides_of(kept))}] = ({c_type(node.outs[0].dtype)})found;")


@kernel("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp", streams=(0,))
def cumulative(k: Kernel, node: Node) -> None:
    """Cumulative results along ``axis``."""
    source, axis, word = node.ins[0], node.params["axis"], node.prim[3:]
    out, strides = k.target(node.outs[0]), strides_of(source.shape)
    wide = _accumulator(word, source.dtype)
    start = start_of("max" if word == "logsumexp" else word, wide)
    with k.nest([1 if d == axis else n for d, n in enumerate(source.shape)]) as index:
        k.line(f"{c_type(wide)} s = {start};")
        with k.block(f"for (long j = 0; j < {source.shape[axis]}; ++j)"):
            at = [*index]
            at[axis] = Affine({"j": -1}, source.shape[axis] - 1) if node.params["reverse"] else Affine.of("j")
            x = f"({c_type(wide)}){k.element(source, at)}"
            step = f"logaddexp_{short(wide)}(s, {x})" if word == "logsumexp" else combined(word, wide, "s", x)
            k.line(f"s = {step};")
            k.line(f"{out}[{address(at, strides)}] = ({c_type(source.dtype)})s;")
