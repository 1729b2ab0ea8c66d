"""Distribution of batches to trainers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

__all__ = ["distributed_batch_reader"]

Reader = Callable[[], Iterator[Any]]


def distributed_batch_reader(batch_reader: Reader) -> Reader:
    """A reader of this trainer's batches: of every ``PADDLE_TRAINERS_NUM`` batches, number ``PADDLE_TRAINER_ID``.

    Trailing batches too few for all trainers are dropped, so that all make the same number of steps. With a single
    trainer, the default, it yields all batches of ``batch_reader``.

    Args:
        batch_reader: a function that returns an iterator over batches.

    Raises:
        ValueError: the environment's trainer id is not below its number of trainers.

    Examples:
        >>> reader = fluid.contrib.distributed_batch_reader(paddle.batch(lambda: iter(range(4)), 2))
        >>> list(reader())
        [[0, 1], [2, 3]]
    """
    trainers = int(os.environ.get("PADDLE_TRAINERS_NUM", 1))
    trainer = int(os.environ.get("PADDLE_TRAINER_ID", 0))
    if not 0 <= trainer < trainers:
        raise ValueError(
            f"distributed_batch_reader: PADDLE_TRAINER_ID is {trainer}, PADDLE_TRAINERS_NUM {trainers}. Ids go from 0"
            " to one less than the number of trainers."
        )

    def read() -> Iterator[Any]:
        batches = iter(batch_reader())
        while len(group := list(islice(batches, trainers))) == trainers:
            yield group[trainer]

    return read
