"""Sorting, and the largest elements of a row."""

from __future__ import annotations

from fluidjax.export.c.affine import Affine, address, strides_of
from fluidjax.export.c.kernel import Kernel
from fluidjax.export.c.rules import kernel
from fluidjax.export.c.types import c_type, short
from fluidjax.export.graph import Node


@kernel("sort")
def sort(k: Kernel, node: Node) -> None:
    """Sort rows along ``dimension`` by the first ``num_keys`` operands, stably, by merging ever longer runs."""
    shape, axis = node.ins[0].shape, node.params["dimension"]
    count, strides, keys = shape[axis], strides_of(shape), node.params["num_keys"]
    order, spare = k.temporary("int64", count), k.temporary("int64", count)
    outs = [k.target(value) for value in node.outs]
    with k.nest([1 if d == axis else n for d, n in enumerate(shape)]) as index:

        def element(at: int, word: str) -> str:
            return k.element(node.ins[at], [Affine.of(word) if d == axis else i for d, i in enumerate(index)])

        k.line(f"for (long i = 0; i < {count}; ++i) {order}[i] = i;")
        k.line(f"int64_t *from = {order}, *to = {spare};")
        with k.block(f"for (long run = 1; run < {count}; run *= 2)"):
            with k.block(f"for (long left = 0; left < {count}; left += 2 * run)"):
                k.line(f"const long middle = left + run < {count} ? left + run : {count};")
                k.line(f"const long end = left + 2 * run < {count} ? left + 2 * run : {count};")
                k.line("long a = left, b = middle;")
                with k.block("for (long o = left; o < end; ++o)"):
                    k.line("int second = a == middle;")
                    with k.block("if (!second && b < end)"):
                        k.line("const long x = from[a], y = from[b];")
                        for at in range(keys):
                            less = f"less_{short(node.ins[at].dtype)}"
                            y_first = f"{less}({element(at, 'y')}, {element(at, 'x')})"
                            k.line(f"{'' if at == 0 else 'else '}if ({y_first}) second = 1;")
                            if at + 1 < keys:
                                k.line(f"else if ({less}({element(at, 'x')}, {element(at, 'y')})) second = 0;")
                    k.line("to[o] = second ? from[b++] : from[a++];")
            k.line("int64_t *swap = from; from = to; to = swap;")
        for at, out in enumerate(outs):
            where = [Affine.of("i") if d == axis else i for d, i in enumerate(index)]
            k.line(f"for (long i = 0; i < {count}; ++i) {out}[{address(where, strides)}] = {element(at, 'from[i]')};")


@kernel("top_k", streams=(0,))
def top_k(k: Kernel, node: Node) -> None:
    """The largest elements of each row in order, earlier ones first among equals, by insertion."""
    source, count = node.ins[0], node.params["k"]
    values, places = node.outs
    axis = node.params.get("axis", node.params.get("dimension", len(source.shape) - 1)) % len(source.shape)
    v, p = k.target(values), k.target(places)
    strides = strides_of(values.shape)
    step = strides[axis]
    less = f"less_{short(source.dtype)}"
    with k.nest([1 if d == axis else n for d, n in enumerate(source.shape)]) as index:
        base = address([Affine() if d == axis else i for d, i in enumerate(index)], strides)
        k.line("long held = 0;")
        with k.block(f"for (long j = 0; j < {source.shape[axis]}; ++j)"):
            at = [Affine.of("j") if d == axis else i for d, i in enumerate(index)]
            k.line(f"const {c_type(source.dtype)} x = {k.element(source, at)};")
            last = base + Affine({"held": step}, -step)
            k.line(f"if (held == {count} && !{less}({v}[{last}], x)) continue;")
            k.line(f"long o = held < {count} ? held++ : {count - 1};")
            before, here = base + Affine({"o": step}, -step), base + Affine({"o": step})
            with k.block(f"while (o > 0 && {less}({v}[{before}], x))"):
                k.line(f"{v}[{here}] = {v}[{before}]; {p}[{here}] = {p}[{before}]; --o;")
            k.line(f"{v}[{here}] = x; {p}[{here}] = ({c_type(places.dtype)})j;")
