"""Which samples make up each batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from fluidjax.dataloader.dataset import Dataset

__all__ = ["BatchSampler"]


class BatchSampler:
    """Iterates over lists of ``batch_size`` indices.

    Args:
        dataset: a Dataset, all of whose indices are drawn; or
        indices: the indices to draw.
        shuffle: draw in another order each time, by NumPy's global generator.
        batch_size: indices in a list.
        drop_last: leave a last list out that is too short.
    """

    def __init__(
        self,
        dataset: Dataset | None = None,
        indices: Sequence[int] | None = None,
        shuffle: bool = False,
        batch_size: int = 1,
        drop_last: bool = False,
    ) -> None:
        _insist((dataset is None) != (indices is None), "one of dataset and indices", "both" if dataset else "neither")
        if dataset is not None:
            _insist(isinstance(dataset, Dataset), "dataset to be an instance of paddle.io.Dataset", type(dataset))
            indices = range(len(dataset))
        positive = isinstance(batch_size, int) and batch_size > 0
        _insist(positive, "batch_size should be a positive integer", batch_size)
        _insist(isinstance(shuffle, bool), "shuffle should be a boolean value", type(shuffle))
        _insist(isinstance(drop_last, bool), "drop_last should be a boolean value", type(drop_last))
        assert indices is not None
        self.indices = list(indices)
        self.batch_size, self.shuffle, self.drop_last = batch_size, shuffle, drop_last

    def __iter__(self) -> Iterator[list[int]]:
        order = np.random.permutation(len(self.indices)).tolist() if self.shuffle else range(len(self.indices))
        drawn = [self.indices[i] for i in order]
        end = len(self) * self.batch_size
        for start in range(0, min(end, len(drawn)), self.batch_size):
            yield drawn[start : start + self.batch_size]

    def __len__(self) -> int:
        spare = 0 if self.drop_last else self.batch_size - 1
        return (len(self.indices) + spare) // self.batch_size


def _insist(condition: bool, expected: str, received: object) -> None:
    if not condition:
        raise AssertionError(f"BatchSampler: {expected}, but got {received}; correct the argument")
