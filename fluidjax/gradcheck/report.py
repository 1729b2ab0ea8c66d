"""The results of a gradient check."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from typing import Any

from fluidjax.base.tables import page, text_table


class GradientMismatch(AssertionError):
    """Gradients disagree. ``report`` holds all numbers."""

    def __init__(self, message: str, report: GradientReport):
        super().__init__(message)
        self.report = report


@dataclass(frozen=True)
class Row:
    """One comparison along a random direction u: <gradient, u> in three ways, and their largest relative error.

    ``autodiff`` is None if jax cannot differentiate the function (such as a loop of unknown length).
    """

    what: str
    fluid: float
    autodiff: float | None
    difference: float
    error: float
    ok: bool

    def cells(self) -> list[str]:
        """The cells of its row in the report's table."""
        autodiff = "--" if self.autodiff is None else f"{self.autodiff:.8e}"
        return [self.what, f"{self.fluid:.8e}", autodiff, f"{self.difference:.8e}", f"{self.error:.1e}", _mark(self.ok)]


@dataclass(frozen=True)
class Beside:
    """A result computed in two ways that should agree: the relative norm of the difference."""

    what: str
    error: float
    ok: bool

    def cells(self) -> list[str]:
        """The cells of its row in the report's table."""
        return [self.what, f"{self.error:.1e}", _mark(self.ok)]


_WAYS = ["", "Fluid", "jax.vjp", "differences", "error", ""]
_ERROR = ["", "error", ""]


@dataclass
class GradientReport:
    """Rows per gradient op, parameter and feed. Printed as tables.

    Attributes:
        ops: individual gradient ops, those in loops and branches with their block.
        parameters, feeds: the whole backward pass.
        float32: results and gradients of each op in float32, against float64.
        padded: results and gradients of each op on padded rows, against unpadded rows.
        compiled: gradients as the executor computes them (compiled, float32, padded), against float64.
        whole: ops checked only as part of the whole program.
        unchecked: what was not checked, with the reason.
        first_bad_op: the first gradient op, in the order of the backward pass, that disagrees.
    """

    ops: list[Row] = field(default_factory=list)
    parameters: list[Row] = field(default_factory=list)
    feeds: list[Row] = field(default_factory=list)
    float32: list[Beside] = field(default_factory=list)
    padded: list[Beside] = field(default_factory=list)
    compiled: list[Beside] = field(default_factory=list)
    whole: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    first_bad_op: str | None = None

    @property
    def agrees(self) -> bool:
        """Whether everything compared agrees."""
        tables = (self.ops, self.parameters, self.feeds, self.float32, self.padded, self.compiled)
        return all(row.ok for table in tables for row in table)

    @property
    def ok(self) -> bool:
        """Whether everything was checked and agrees."""
        return self.agrees and not self.unchecked and bool(self.parameters or self.feeds)

    def _tables(self) -> list[tuple[str, list[str], list[list[str]]]]:
        """(title, heads, cells) of each nonempty table."""
        all_of_them: list[tuple[str, list[str], list[Row] | list[Beside]]] = [
            ("per gradient op", _WAYS, self.ops),
            ("per parameter", _WAYS, self.parameters),
            ("per fed value", _WAYS, self.feeds),
            ("per op: float32 against float64", _ERROR, self.float32),
            ("per op: padded rows against exact rows", _ERROR, self.padded),
            ("compiled by the executor, against float64", _ERROR, self.compiled),
        ]
        return [(title, head, [row.cells() for row in rows]) for title, head, rows in all_of_them if rows]

    def _remarks(self) -> list[str]:
        whole = ["checked as a part of the whole program alone: " + ", ".join(self.whole)] if self.whole else []
        unchecked = ["not checked: " + "; ".join(self.unchecked)] if self.unchecked else []
        return [*whole, *unchecked]

    def __str__(self) -> str:
        return "\n\n".join([*(_table(*table) for table in self._tables()), *self._remarks(), self._verdict()])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        """The verdict, followed by foldable tables; those with a disagreement are unfolded."""
        folds = [
            f"<details{' open' if any(_mark(False) in row for row in cells) else ''}><summary>{title}: {len(cells)}"
            f"</summary>{text_table(head, cells)}</details>"
            for title, head, cells in self._tables()
        ]
        remarks = "".join(f"<div>{escape(text)}</div>" for text in self._remarks())
        verdict = f"<div{'' if self.agrees else ' class=bad'}><b>{escape(self._verdict())}</b></div>"
        return page(verdict + "".join(folds) + remarks)

    def _verdict(self) -> str:
        if not self.agrees:
            return "gradients DISAGREE" + (f": first {self.first_bad_op}" if self.first_bad_op else "")
        if self.ok:
            return "ok: everything was checked, and agrees"
        return "what was checked agrees, but not everything was checked"


def _mark(ok: bool) -> str:
    return "ok" if ok else "DISAGREES"


def _table(title: str, head: list[str], cells: list[list[str]]) -> str:
    """A table with one line per row; numbers are right-aligned."""
    lines = [head, *cells]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    last = len(head) - 1
    texts = [
        "  ".join(
            c.ljust(w) if i in (0, last) else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    ]
    return "\n".join([title, *(t.rstrip() for t in texts)])
