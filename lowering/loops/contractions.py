"""Gradients that are a single matrix product: summed over the steps of a loop, they are one product of all rows.

An op's rule declares it: ``@contraction("mul_grad", "Y@GRAD", ("X", "Out@GRAD"))`` over a function of the values of
those inputs, the value of the differentiated input, and the op's attributes. It returns (left [R, K], right [R, N])
such that the gradient has the elements of left^T right, or None if it does not. ``hoist`` relies on this: the
products of single steps sum to the product of their rows joined together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Pair = tuple[Any, Any]


@dataclass(frozen=True)
class Contraction:
    """Output slot ``output`` of a grad op as a product; ``rows(*values of reads, differentiated input, attrs)``."""

    output: str
    reads: tuple[str, ...]
    rows: Callable[..., Pair | None]

    @property
    def source(self) -> str:
        """The input slot whose gradient it is."""
        return self.output.removesuffix("@GRAD")


_FOUND: dict[str, Contraction] = {}


def contraction(type: str, output: str, reads: tuple[str, ...]) -> Callable[[Callable], Callable]:
    """Declare how output ``output`` of grad op ``type`` is a product of rows."""

    def declare(rows: Callable[..., Pair | None]) -> Callable[..., Pair | None]:
        _FOUND[type] = Contraction(output, reads, rows)
        return rows

    return declare


def contractions() -> Mapping[str, Contraction]:
    """Grad op type -> its declaration."""
    return _FOUND


def over_rows(x: Any, y: Any) -> Any:
    """X^T Y of two matrices with as many rows."""
    if y.shape[1] == 1:
        return (y.T @ x).T  # XLA:CPU would transpose all of X for one column, and take three times as long
    return x.T @ y
