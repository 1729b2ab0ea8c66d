"""Training curves: values collected in a loop, drawn as an SVG with one panel per name."""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape
from typing import Any, NamedTuple

import numpy as np

from fluidjax.drawing.svg import FONT, Drawing

# Size of a panel's plot, the room for its labels, and how many panels stand side by side.
_WIDTH, _HEIGHT, _LEFT, _TOP, _ROOM, _ACROSS = 330.0, 170.0, 64.0, 40.0, 34.0, 2
# A longer curve is drawn as the mean of each stretch of steps, in a band from the least to the largest value.
_POINTS = 300
_INK, _GRID, _LINE, _BAND, _BAD = "#212121", "#e0e0e0", "#1f6fb2", "#cfe2f3", "#c0392b"


class Curves:
    """Values of a training run, drawn as curves: displayed by notebooks, written as SVG by ``save``.

    There is one panel per name. NaN and infinity leave gaps, marked in red at the bottom. Curves of over 300 points
    show means, with the range of values as a band.

    Examples:
        >>> curves = fluid.debugger.Curves()
        >>> for step in range(3):
        ...     curves.add(loss=1 / (1 + step), accuracy=np.float32([step / 2]))
        >>> print(curves)
        loss      0.3333 at step 2, least 0.3333 at step 2, largest 1 at step 0
        accuracy  1 at step 2, least 0 at step 0, largest 1 at step 2
        >>> curves.save("curves.svg")
        'curves.svg'
    """

    def __init__(self) -> None:
        self._points: dict[str, list[tuple[float, float]]] = {}

    def add(self, step: float | None = None, **values: Any) -> None:
        """Add a point to each named curve.

        Args:
            step: position of the point; if None, one more than the curve's last step (0 initially).
            values: numbers, or single-element arrays such as a fetched loss.

        Raises:
            ValueError: an array has another size; no points are added.
        """
        numbers = {name: _number(name, value) for name, value in values.items()}
        for name, number in numbers.items():
            points = self._points.setdefault(name, [])
            points.append(((points[-1][0] + 1 if points else 0.0) if step is None else float(step), number))

    def series(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """(steps, values) of a curve, float64 [points]. Raises KeyError for an unknown name."""
        steps, values = np.array(self._points[name], "float64").T
        return steps, values

    def save(self, path: str) -> str:
        """Write the SVG to a file and return the file's path."""
        return self.drawing().save(path)

    def drawing(self) -> Drawing:
        """The picture."""
        panels = [_panel(name, *self.series(name)) for name in self._points]
        width, height = _LEFT + _WIDTH + _ROOM, _TOP + _HEIGHT + _ROOM
        rows = -(-len(panels) // _ACROSS)
        placed = "".join(
            f'<g transform="translate({width * (at % _ACROSS):.0f},{height * (at // _ACROSS):.0f})">{panel}</g>'
            for at, panel in enumerate(panels)
        )
        size = f"{width * min(len(panels), _ACROSS):.0f}", f"{height * rows:.0f}"
        return Drawing(
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{size[0]}" height="{size[1]}" '
            f'viewBox="0 0 {size[0]} {size[1]}" {FONT} fill="{_INK}">'
            f'<rect width="100%" height="100%" fill="#ffffff"/>{placed}</svg>'
        )

    def _repr_svg_(self) -> str:
        return self.drawing().svg

    def __str__(self) -> str:
        widest = max(map(len, self._points), default=0)
        return "\n".join(f"{name.ljust(widest)}  {_summary(*self.series(name))}" for name in self._points)

    def __repr__(self) -> str:
        return f"<Curves: {', '.join(f'{name} ({len(points)})' for name, points in self._points.items()) or 'none'}>"


def _number(name: str, value: Any) -> float:
    array = np.asarray(value, "float64")
    if array.size != 1:
        raise ValueError(
            f"Curves: the value of {name!r}\n  expected: a number, or an array of one element\n"
            f"  received: shape {list(array.shape)}\n  what to do: fetch a mean, or pass value.mean()"
        )
    return array.item()


def _summary(steps: np.ndarray, values: np.ndarray) -> str:
    last = f"{values[-1]:.4g} at step {steps[-1]:g}"
    finite = np.flatnonzero(np.isfinite(values))
    if not finite.size:
        return last
    low, high = finite[values[finite].argmin()], finite[values[finite].argmax()]
    return f"{last}, least {values[low]:.4g} at step {steps[low]:g}, largest {values[high]:.4g} at step {steps[high]:g}"


class _Stretch(NamedTuple):
    """Adjacent points: the centre of their steps; mean, minimum and maximum of the finite values; the others."""

    step: float
    mean: float
    low: float
    high: float
    bad: bool


def _stretches(steps: np.ndarray, values: np.ndarray) -> list[_Stretch]:
    parts = min(len(steps), _POINTS)
    return [_stretch(s, v) for s, v in zip(np.array_split(steps, parts), np.array_split(values, parts), strict=True)]


def _stretch(steps: np.ndarray, values: np.ndarray) -> _Stretch:
    finite = values[np.isfinite(values)]
    if not finite.size:
        return _Stretch(steps.mean(), math.nan, math.nan, math.nan, True)
    return _Stretch(steps.mean(), finite.mean(), finite.min(), finite.max(), finite.size < values.size)


class _Axis(NamedTuple):
    """A mapping from a range of numbers to a range of pixels."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def _axis(values: np.ndarray, start: float, end: float) -> _Axis:
    low, high = (values.min(), values.max()) if values.size else (0.0, 1.0)
    room = (high - low) * 0.04 or abs(low) * 0.1 or 1.0
    return _Axis(low - room, high + room, start, end)


def _ticks(axis: _Axis, most: int = 5) -> list[float]:
    """Tick positions on an axis: multiples of 1, 2 or 5 times a power of ten."""
    raw = (axis.high - axis.low) / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * (1 - 1e-9))
    first = math.ceil(axis.low / step)
    return [step * n for n in range(first, math.floor(axis.high / step) + 1)]


def _panel(name: str, steps: np.ndarray, values: np.ndarray) -> str:
    across = _axis(steps, _LEFT, _LEFT + _WIDTH)
    up = _axis(values[np.isfinite(values)], _TOP + _HEIGHT, _TOP)
    stretches = _stretches(steps, values)
    last = f"{escape(f'{values[-1]:.4g}')} at step {steps[-1]:g}"
    return "".join(
        [
            f'<text x="{_LEFT}" y="20" font-weight="bold">{escape(name)}</text>',
            f'<text x="{_LEFT + _WIDTH}" y="20" text-anchor="end">{last}</text>',
            *_grid(across, up),
            *_drawn(stretches, across, up),
        ]
    )


def _grid(across: _Axis, up: _Axis) -> Iterator[str]:
    yield f'<rect x="{_LEFT}" y="{_TOP}" width="{_WIDTH}" height="{_HEIGHT}" fill="none" stroke="{_GRID}"/>'
    for tick in _ticks(up):
        y = up.at(tick)
        yield f'<path d="M{_LEFT} {y:.1f}H{_LEFT + _WIDTH}" stroke="{_GRID}"/>'
        yield f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:.4g}</text>'
    for tick in _ticks(across):
        yield f'<text x="{across.at(tick):.1f}" y="{_TOP + _HEIGHT + 16}" text-anchor="middle">{tick:g}</text>'


def _drawn(stretches: list[_Stretch], across: _Axis, up: _Axis) -> Iterator[str]:
    for run in _runs(stretches):
        if any(s.low < s.high for s in run):
            edge = [(s.step, s.low) for s in run] + [(s.step, s.high) for s in reversed(run)]
            yield f'<path d="{_path(edge, across, up)}Z" fill="{_BAND}"/>'
        line = _path([(s.step, s.mean) for s in run], across, up)
        yield f'<path d="{line}" fill="none" stroke="{_LINE}" stroke-width="1.5" stroke-linecap="round"/>'
    for stretch in stretches:
        if stretch.bad:
            yield f'<path d="M{across.at(stretch.step):.1f} {_TOP + _HEIGHT}v-8" stroke="{_BAD}" stroke-width="2"/>'


def _runs(stretches: list[_Stretch]) -> Iterator[list[_Stretch]]:
    """Stretches with finite values, as one list between gaps."""
    run: list[_Stretch] = []
    for stretch in stretches:
        if math.isnan(stretch.mean):
            yield from [run] if run else []
            run = []
        else:
            run.append(stretch)
    yield from [run] if run else []


def _path(points: list[tuple[float, float]], across: _Axis, up: _Axis) -> str:
    """A polyline; a single point is a line of zero length, shown as its round cap."""
    whole = points if len(points) > 1 else points * 2
    return "M" + "L".join(f"{across.at(x):.1f} {up.at(y):.1f}" for x, y in whole)
