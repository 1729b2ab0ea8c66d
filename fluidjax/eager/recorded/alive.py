"""Which pending outputs are still wanted: those that anybody but the recorder refers to."""

from __future__ import annotations

import sys

from fluidjax.eager.values import Value


def referenced(outputs: dict[int, Value], end: int) -> tuple[int, ...]:
    """The numbers below `end` of the outputs with references other than the dict's."""
    count = sys.getrefcount
    return tuple(sorted([code for code, value in outputs.items() if count(value) > _ALONE and code < end]))


_ALONE = [sys.getrefcount(value) for _, value in {0: object()}.items()][0]  # of one that the dict alone refers to
