"""What is known of the tensor arrays of a loop while a step of it is traced."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ArrayFacts:
    """Names of arrays, and of elements.

    Attributes:
        fixed: loop invariants.
        multiplied: elements that only products of matrices read.
        unflagged: gradient arrays whose elements are taken at most once.
        once: gradient arrays that begin as zeros and of which each step writes an element of its own, once.
    """

    fixed: frozenset[str] = frozenset()
    multiplied: frozenset[str] = frozenset()
    unflagged: frozenset[str] = frozenset()
    once: frozenset[str] = frozenset()
