"""Plots of growth: a curve for each cost over the size, on doubly logarithmic axes, as small SVG files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

# Text stays text, and the same numbers give the same file.
_STYLE = {"svg.fonttype": "none", "svg.hashsalt": "growth", "font.size": 9}


def draw(path: Path, curves: Mapping[str, Sequence[float]], sizes: Sequence[float], unit: str) -> None:
    """Write the plot of CPU ``curves``, seconds at each of the ``sizes``, to an SVG file."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(6.4, 3.2), layout="constrained")
        axes = figure.add_subplot(xscale="log", yscale="log", xlabel=unit, ylabel="CPU ms")
        for name, seconds in curves.items():
            axes.plot(sizes, [1e3 * s for s in seconds], marker="o", markersize=3, linewidth=1.2, label=name)
        axes.set_xticks(sizes, [f"{size:,.0f}" for size in sizes])
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_minor_locator(NullLocator())
        axes.grid(linewidth=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        figure.legend(loc="outside right upper", frameon=False)
        figure.savefig(path, metadata={"Date": None})
