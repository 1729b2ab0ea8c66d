"""Output of commands: usage errors, sizes, tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fluidjax.base.errors import explain


class BadUse(Exception):
    """Invalid arguments of a command; shown without a traceback, with exit status 2."""

    def __init__(self, what: str, expected: str, received: str, todo: str):
        super().__init__(explain(what, expected, received, todo))


def size(count: int) -> str:
    """A human-readable number of bytes: ``"1.5 MB"``."""
    number = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000 or unit == "GB":
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    raise AssertionError("unreachable")


def table(rows: Iterable[Sequence[object]], indent: str = "  ") -> str:
    """Align rows in columns: integers to the right, the last column with variable width."""
    rows = [list(row) for row in rows]
    texts = [[str(cell) for cell in row] for row in rows]
    if not texts:
        return ""
    widths = [max(len(row[at]) for row in texts) for at in range(len(texts[0]) - 1)]
    adjust = [str.rjust if all(isinstance(row[at], int) for row in rows) else str.ljust for at in range(len(widths))]
    lines = []
    for row in texts:
        cells = [place(cell, width) for place, cell, width in zip(adjust, row, widths, strict=False)]
        lines.append((indent + "  ".join([*cells, row[-1]])).rstrip())
    return "\n".join(lines)
