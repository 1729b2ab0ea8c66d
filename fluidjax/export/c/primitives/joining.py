"""Joining arrays: side by side, inside a border, into part of another."""

from __future__ import annotations

from fluidjax.export.c.affine import Affine, Index, address, strides_of
from fluidjax.export.c.kernel import Kernel, merged_nest, probe
from fluidjax.export.c.primitives.views import clamped_starts
from fluidjax.export.c.rules import kernel
from fluidjax.export.c.types import c_type
from fluidjax.export.graph import Node, Value


def place(k: Kernel, source: Value, out: str, strides: list[int], start: Affine | int = 0) -> None:
    """Store ``source`` at ``start``, with neighbours ``strides`` apart."""

    def visit(index: Index) -> str:
        at = address(index, strides, start)
        k.accesses.append(at)
        return f"{out}[{at}] = {k.element(source, index)};"

    with merged_nest(k, source.shape, probe(k, source.shape, visit)) as index:
        k.line(visit(index))


@kernel("concatenate", streams=None)
def concatenate(k: Kernel, node: Node) -> None:
    """One array after the other along ``dimension``."""
    strides, axis, before = strides_of(node.outs[0].shape), node.params["dimension"], 0
    out = k.target(node.outs[0])
    for source in node.ins:
        if source.size:
            place(k, source, out, strides, before * strides[axis])
        before += source.shape[axis]


@kernel("stack", streams=None)
def stack(k: Kernel, node: Node) -> None:
    """One array after the other along a new dim."""
    shape, axis = node.outs[0].shape, node.params["axis"]
    strides, out = strides_of(shape), k.target(node.outs[0])
    for at, source in enumerate(node.ins):
        place(k, source, out, [s for d, s in enumerate(strides) if d != axis], at * strides[axis])


@kernel("pad", streams=(0,))
def pad(k: Kernel, node: Node) -> None:
    """A constant border around, and between, the elements; negative widths crop."""
    source, value = node.ins
    out, shape, strides = k.target(node.outs[0]), node.outs[0].shape, strides_of(node.outs[0].shape)
    config = node.params["padding_config"]
    filled = k.element(value, [])
    k.line(f"for (long i = 0; i < {node.outs[0].size}; ++i) {out}[i] = {filled};")
    first, count = [], []
    for (low, _, gap), n, full in zip(config, source.shape, shape, strict=True):
        step = gap + 1
        begin = -(low // step) if low < 0 else 0
        end = min(n, -(-(full - low) // step)) if full > low else 0
        first.append(begin)
        count.append(max(end - begin, 0))
    if 0 in count:
        return

    def visit(index: Index) -> str:
        at = [i + b for i, b in zip(index, first, strict=True)]
        to = address([i * (gap + 1) + low for i, (low, _, gap) in zip(at, config, strict=True)], strides)
        k.accesses.append(to)
        return f"{out}[{to}] = {k.element(source, at)};"

    with merged_nest(k, count, probe(k, count, visit)) as index:
        k.line(visit(index))


@kernel("dynamic_update_slice", streams=(1,), updates=0)
def dynamic_update_slice(k: Kernel, node: Node) -> None:
    """Replace a part; its start is clamped so that the part fits."""
    source, update, *starts = node.ins
    out, strides = k.target(node.outs[0]), strides_of(source.shape)
    copied(k, node.outs[0], source)
    if not update.size:
        return
    words = []
    for begin in clamped_starts(k, starts, source.shape, update.shape):
        words.append(Affine() if begin.fixed else Affine.of(k.name("b")))
        if not begin.fixed:
            k.line(f"const long {words[-1]} = {begin};")
    place(k, update, out, strides, address(words, strides))


def copied(k: Kernel, out: Value, source: Value) -> None:
    """Initialise ``out`` with ``source``, unless it already occupies its memory."""
    if k.in_place(out, source):
        return
    to = k.target(out)
    if source.scalar:
        k.line(f"for (long i = 0; i < {out.size}; ++i) {to}[i] = {k.element(source, [])};")
    else:
        k.line(f"memcpy({to}, {k.pointer(source)}, {out.size} * sizeof({c_type(out.dtype)}));")
