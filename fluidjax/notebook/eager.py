"""Notebook representations in eager mode: a variable with its value, a network as the tree of its layers."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

import numpy as np

from fluidjax.base.enums import VarType, to_numpy_dtype
from fluidjax.base.tables import page
from fluidjax.dygraph.layers import Layer
from fluidjax.eager.variables.varbase import VarBase


def _facts(var: VarBase) -> str:
    gradient = "no gradient" if var.stop_gradient else "needs gradient"
    return f"{list(var.shape)} {to_numpy_dtype(var.dtype).name}, {gradient}"


def _numbers(var: VarBase) -> str:
    if var._value is None:
        return "no value yet"
    if var.type == VarType.SELECTED_ROWS:
        return "rows of a sparse gradient"
    return np.array2string(np.asarray(var.numpy()), threshold=64, edgeitems=3, precision=5)


def variable_text(var: VarBase) -> str:
    """Name, shape, dtype, stop_gradient and values."""
    return f"{var.name}: {_facts(var)}\n{_numbers(var)}"


def variable_html(var: VarBase) -> str:
    """The same as HTML."""
    return page(f"<div><b>{escape(var.name)}</b>: {escape(_facts(var))}</div><pre>{escape(_numbers(var))}</pre>")


def _count(layer: Layer) -> str:
    sizes = [int(np.prod(p.shape)) for p in layer.parameters()]
    fixed = sum(size for size, p in zip(sizes, layer.parameters(), strict=True) if p.stop_gradient or not p.trainable)
    rest = f", {fixed:,} of them not trained" if fixed else ""
    return f"{sum(sizes):,} parameters{rest}"


def _title(layer: Layer) -> str:
    return f"{type(layer).__name__} ({layer.full_name()}): {_count(layer)}"


def _own(layer: Layer) -> str:
    return ", ".join(f"{name} {list(p.shape)}" for name, p in layer._parameters.items() if p is not None)


def _children(layer: Layer) -> Iterator[tuple[str, Any]]:
    return ((name, child) for name, child in layer._sub_layers.items() if child is not None)


def layer_text(layer: Layer, name: str = "", indent: str = "") -> str:
    """The layer and its sublayers, each with its number of parameter elements."""
    lines = [f"{indent}{name + ': ' if name else ''}{_title(layer)}"]
    lines += [f"{indent}  {_own(layer)}"] if _own(layer) else []
    lines += [layer_text(child, key, indent + "  ") for key, child in _children(layer)]
    return "\n".join(lines)


def layer_html(layer: Layer) -> str:
    """The same as foldable HTML."""
    return page(_tree(layer))


def _tree(layer: Layer, name: str = "") -> str:
    head = f"{f'<b>{escape(name)}</b>: ' if name else ''}{escape(_title(layer))}"
    own = f"<div>{escape(_own(layer))}</div>" if _own(layer) else ""
    below = "".join(_tree(child, key) for key, child in _children(layer))
    body = f'<div style="margin-left:1.5em">{own}{below}</div>'
    return f"<details open><summary>{head}</summary>{body}</details>"


def install_eager_reprs() -> None:
    """Add notebook representations to eager variables and layers."""
    shown: tuple[tuple[Any, Any, Any], ...] = (
        (VarBase, variable_text, variable_html),
        (Layer, layer_text, layer_html),
    )
    for kind, text, html in shown:
        kind._repr_html_ = html
        kind._repr_pretty_ = _pretty(text)


def _pretty(text: Any) -> Any:
    def show(value: Any, printer: Any, cycle: bool) -> None:
        printer.text(text(value))

    return show
