"""Readers of samples become readers of batches (``paddle.batch``)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

__all__ = ["batch"]


def batch(
    reader: Callable[[], Iterable[Any]], batch_size: int, drop_last: bool = False
) -> Callable[[], Iterator[list[Any]]]:
    """A reader of lists of ``batch_size`` samples; the last may be shorter unless ``drop_last``.

    Raises ValueError if ``batch_size`` is not positive.

    Examples:
        >>> reader = paddle.batch(lambda: iter(range(5)), batch_size=2)
        >>> list(reader())
        [[0, 1], [2, 3], [4]]
    """
    size = int(batch_size)
    if size <= 0:
        raise ValueError(
            f"batch_size should be a positive integeral value, but got batch_size={batch_size}; pass 1 or more"
        )

    def batches() -> Iterator[list[Any]]:
        samples = iter(reader())
        while group := list(itertools.islice(samples, size)):
            if len(group) == size or not drop_last:
                yield group

    return batches
