"""A picture of a LoD: a line for each sequence, a box for each of its rows, brackets for coarser levels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

import numpy as np

# Sequences and rows of each that are drawn; the rest is counted.
_SEQUENCES, _ROWS = 16, 24
_HEIGHT, _GAP, _BRACKET = 18, 4, 16
_FILL = ("#b3dee2", "#f5d0a9")  # by turns, for the groups of the level above
_BOX = '<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="2" fill="{fill}" stroke="#78909c"/>'
_TEXT = '<text x="{x}" y="{y}" fill="{color}" text-anchor="{anchor}">{text}</text>'


def lod_svg(lod: Sequence[Sequence[int]], rows: np.ndarray) -> str:
    """The picture as SVG, from the offsets `lod` and the tensor `rows`; single-element rows show their value."""
    numbers = rows.reshape(len(rows), -1) if rows.size and rows.size == len(rows) else None
    shown = min(len(lod[-1]) - 1, _SEQUENCES)
    longest = max((lod[-1][i + 1] - lod[-1][i] for i in range(shown)), default=0)
    width = 40 if numbers is not None else _HEIGHT
    left = _BRACKET * (len(lod) - 1) + 34
    parts = [*_brackets(lod, shown), *_sequences(lod, shown, left, width, numbers)]
    height = shown * (_HEIGHT + _GAP) + _GAP + _HEIGHT * (shown < len(lod[-1]) - 1)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + (min(longest, _ROWS) + 2) * (width + 2)}" '
        f'height="{height}" font-family="ui-monospace,Menlo,Consolas,monospace" font-size="11">{"".join(parts)}</svg>'
    )


def _sequences(
    lod: Sequence[Sequence[int]], shown: int, left: int, width: int, numbers: np.ndarray | None
) -> Iterator[str]:
    for index in range(shown):
        begin, end = lod[-1][index], lod[-1][index + 1]
        y = _GAP + index * (_HEIGHT + _GAP)
        yield _text(left - 6, y, str(end - begin), "end", "currentColor")
        for at in range(min(end - begin, _ROWS)):
            x = left + at * (width + 2)
            yield _BOX.format(x=x, y=y, width=width, height=_HEIGHT, fill=_FILL[_group(lod, index) % 2])
            if numbers is not None:
                yield _text(x + width / 2, y, f"{numbers[begin + at, 0]:.3g}", "middle", "#222")
        if end - begin > _ROWS:
            yield _text(left + _ROWS * (width + 2), y, f"+{end - begin - _ROWS}", "start", "currentColor")
    if shown < len(lod[-1]) - 1:
        rest = len(lod[-1]) - 1 - shown
        yield _text(left, _GAP + shown * (_HEIGHT + _GAP), f"... and {rest} more sequences", "start", "currentColor")


def _text(x: float, y: float, text: str, anchor: str, color: str) -> str:
    return _TEXT.format(x=x, y=y + 13, color=color, anchor=anchor, text=escape(text))


def _group(lod: Sequence[Sequence[int]], index: int) -> int:
    """The group of the next coarser level that a sequence belongs to; itself without one."""
    return index if len(lod) == 1 else int(np.searchsorted(lod[-2], index, side="right")) - 1


def _brackets(lod: Sequence[Sequence[int]], shown: int) -> Iterator[str]:
    """A bracket to the left of the sequences in each entry of a coarser level."""
    for depth in range(len(lod) - 1):
        spans = np.asarray(lod[depth])
        for finer in lod[depth + 1 : -1]:
            spans = np.asarray(finer)[spans]
        for begin, end in zip(spans, spans[1:], strict=False):
            end = min(end, shown)
            if begin < end:
                top, bottom = _GAP + begin * (_HEIGHT + _GAP), end * (_HEIGHT + _GAP)
                x = 4 + depth * _BRACKET
                yield f'<path d="M{x + 5} {top}H{x}V{bottom}H{x + 5}" fill="none" stroke="#78909c" stroke-width="1.5"/>'
