"""The order of gradient summation in a backward pass."""

from __future__ import annotations


class BackwardStrategy:
    """Settings of ``VarBase.backward``.

    Attributes:
        sort_sum_gradient: whether the gradients of a variable are added in the order of its uses. They always are here,
            so both settings give the same bits.
    """

    __slots__ = ("sort_sum_gradient",)  # a misspelt setting is an error

    def __init__(self) -> None:
        self.sort_sum_gradient = False
