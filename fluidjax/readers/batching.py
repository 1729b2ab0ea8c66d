"""Readers of samples become readers of batches (``paddle.batch``)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from fluidjax.base.errors import explain

__all__ = ["batch"]


def a_reader(reader: Any, taker: str) -> None:
    """Refuse, in the name of ``taker``, what is no reader by TypeError: often it is what calling a reader gives."""
    if not callable(reader):
        raise TypeError(
            explain(
                f"{taker}: {reader!r:.60} is no reader",
                "a function without arguments that returns an iterable of samples",
                f"{type(reader).__name__}, which cannot be called for each pass over the data",
                "give the reader itself, not the result of calling it; for a list of samples, `lambda: iter(samples)`",
            )
        )


def batch(
    reader: Callable[[], Iterable[Any]], batch_size: int, drop_last: bool = False
) -> Callable[[], Iterator[list[Any]]]:
    """A reader of lists of ``batch_size`` samples; the last may be shorter unless ``drop_last``.

    Raises ValueError if ``batch_size`` is not positive, TypeError for what is no reader.

    Examples:
        >>> reader = paddle.batch(lambda: iter(range(5)), batch_size=2)
        >>> list(reader())
        [[0, 1], [2, 3], [4]]
    """
    a_reader(reader, "paddle.batch")
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
