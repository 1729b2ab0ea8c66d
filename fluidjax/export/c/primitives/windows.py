"""Windows: pooling and its gradient."""

from __future__ import annotations

from typing import Any

from fluidjax.export.c.affine import Affine, Index, address, strides_of
from fluidjax.export.c.kernel import Kernel
from fluidjax.export.c.primitives.reductions import combined, start_of
from fluidjax.export.c.rules import kernel
from fluidjax.export.c.types import c_type
from fluidjax.export.graph import Node

_WORDS = {"reduce_window_sum": "sum", "reduce_window_max": "max", "reduce_window_min": "min"}


def _places(
    k: Kernel, params: dict[str, Any], shape: tuple[int, ...], index: Index, window: Index, dilated: bool = True
) -> tuple[list[Affine], str]:
    """(the input element under each position of a window, the condition for it to exist)."""
    places, conditions = [], []
    for d, n in enumerate(shape):
        low, _ = params["padding"][d]
        step = params["window_strides"][d]
        wide = (params.get("window_dilation") or [1] * len(shape))[d] if dilated else 1
        base = (params.get("base_dilation") or [1] * len(shape))[d] if dilated else 1
        at = index[d] * step + window[d] * wide + -low
        size = params["window_dimensions"][d]
        if size == 1 and step == 1 and low == 0 and base == 1:
            places.append(at)
            continue
        word = k.name("a")
        k.line(f"const long {word} = {at};")
        inside = f"{word} >= 0 && {word} < {n * base - base + 1}"
        if base > 1:
            inside += f" && {word} % {base} == 0"
        conditions.append(inside)
        places.append(Affine.of(word if base == 1 else f"({word} / {base})"))
    return places, " && ".join(conditions)


@kernel(*_WORDS)
def reduce_window(k: Kernel, node: Node) -> None:
    """Reduce what lies under each position of the window."""
    source, out, word = node.ins[0], node.outs[0], _WORDS[node.prim]
    to, dtype = k.target(out), source.dtype
    with k.nest(out.shape) as index:
        k.line(f"{c_type(dtype)} s = {start_of(word, dtype)};")
        with k.nest(node.params["window_dimensions"]) as window:
            at, inside = _places(k, node.params, source.shape, index, window)
            step = f"s = {combined(word, dtype, 's', k.element(source, at))};"
            k.line(f"if ({inside}) {step}" if inside else step)
        k.line(f"{to}[{address(index, strides_of(out.shape))}] = s;")


def _usual(node: Node) -> str:
    prim = getattr(node.params.get("select_prim"), "name", "ge")
    return "" if prim in ("ge", "le") else f"by {prim}"


@kernel("select_and_scatter_add", refuses=_usual)
def select_and_scatter_add(k: Kernel, node: Node) -> None:
    """Add each window's cotangent to the first of its extremes."""
    cotangent, source = node.ins
    out, dtype = node.outs[0], c_type(source.dtype)
    to, strides = k.target(out), strides_of(source.shape)
    operator = ">" if node.params["select_prim"].name == "ge" else "<"
    k.line(f"for (long i = 0; i < {out.size}; ++i) {to}[i] = 0;")
    with k.nest(cotangent.shape) as index:
        k.line("long found = -1;")
        k.line(f"{dtype} best = 0;")
        with k.nest(node.params["window_dimensions"]) as window:
            at, inside = _places(k, node.params, source.shape, index, window, dilated=False)
            if inside:
                k.line(f"if (!({inside})) continue;")
            k.line(f"const {dtype} x = {k.element(source, at)};")
            k.line(f"if (found < 0 || x {operator} best || x != x) {{ best = x; found = {address(at, strides)}; }}")
        k.line(f"if (found >= 0) {to}[found] += {k.element(cotangent, index)};")
