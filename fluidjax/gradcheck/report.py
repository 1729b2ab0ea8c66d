"""What a gradient check found."""

from __future__ import annotations

from dataclasses import dataclass, field


class GradientMismatch(AssertionError):
    """Gradients disagree. ``report`` holds all numbers."""

    def __init__(self, message: str, report: GradientReport):
        super().__init__(message)
        self.report = report


@dataclass(frozen=True)
class Row:
    """One comparison along a random direction u: <gradient, u> by three ways, and their largest relative error.

    ``autodiff`` is None where jax cannot differentiate the function (a loop of unknown length, say).
    """

    what: str
    fluid: float
    autodiff: float | None
    difference: float
    error: float
    ok: bool

    def __str__(self) -> str:
        autodiff = "      --      " if self.autodiff is None else f"{self.autodiff: .8e}"
        mark = "ok" if self.ok else "DISAGREES"
        return f"{self.what:<40} {self.fluid: .8e} {autodiff} {self.difference: .8e} {self.error:8.1e} {mark}"


@dataclass
class GradientReport:
    """Rows per gradient op and per parameter. Printing it gives a table."""

    ops: list[Row] = field(default_factory=list)
    parameters: list[Row] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    first_bad_op: str | None = None

    @property
    def ok(self) -> bool:
        """Whether all agree."""
        return all(row.ok for row in [*self.ops, *self.parameters])

    def __str__(self) -> str:
        head = f"{'':<40} {'Fluid':>15} {'jax.vjp':>15} {'differences':>15} {'error':>8}"
        parts = ["per gradient op", head, *map(str, self.ops), "per parameter", head, *map(str, self.parameters)]
        if self.unchecked:
            parts.append("not checked by themselves: " + ", ".join(self.unchecked))
        return "\n".join(parts)
