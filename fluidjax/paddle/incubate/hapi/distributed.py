"""Indices of a data set, dealt out to the processes of a job."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sized

import numpy as np

from fluidjax.dataloader import BatchSampler
from fluidjax.dygraph.parallel import ParallelEnv

__all__ = ["DistributedBatchSampler"]


class DistributedBatchSampler(BatchSampler):
    """Batches of the indices that belong to this process: of n processes, process r has the batches r, n + r, ...

    The first indices come twice if there are too few for as many in each process. What is left after the last n whole
    batches is divided evenly. Shuffled orders differ from epoch to epoch and are the same in all processes.

    Args:
        dataset: anything that has a length.
        batch_size: indices in a batch, at least 1.
        shuffle: whether to shuffle, by a seed that is the number of the epoch.
        drop_last: whether to leave a last, smaller batch out.

    Raises AssertionError for arguments of other kinds.
    """

    def __init__(self, dataset: Sized, batch_size: int, shuffle: bool = False, drop_last: bool = False):
        whole = isinstance(batch_size, int) and batch_size > 0
        assert whole, f"batch_size of DistributedBatchSampler must be a positive integer, received {batch_size!r}"
        for name, value in (("shuffle", shuffle), ("drop_last", drop_last)):
            assert isinstance(value, bool), f"{name} of DistributedBatchSampler must be a bool, received {value!r}"
        environment = ParallelEnv()
        self.dataset, self.batch_size, self.shuffle, self.drop_last = dataset, batch_size, shuffle, drop_last
        self.nranks, self.local_rank = environment.nranks, environment.local_rank
        self.epoch = 0
        self.num_samples = math.ceil(len(dataset) / self.nranks)
        self.total_size = self.num_samples * self.nranks

    def __iter__(self) -> Iterator[list[int]]:
        order = list(range(len(self.dataset)))
        order += order[: self.total_size - len(order)]
        if self.shuffle:
            np.random.RandomState(self.epoch).shuffle(order)
            self.epoch += 1
        mine = self._share(order)
        end = len(mine) - len(mine) % self.batch_size if self.drop_last else len(mine)
        for start in range(0, end, self.batch_size):
            yield mine[start : start + self.batch_size]

    def _share(self, order: list[int]) -> list[int]:
        together = self.batch_size * self.nranks
        whole = len(order) - len(order) % together
        begins = range(self.local_rank * self.batch_size, whole, together)
        rest = (len(order) - whole) // self.nranks
        last = whole + self.local_rank * rest
        return [i for begin in begins for i in order[begin : begin + self.batch_size]] + order[last : last + rest]

    def __len__(self) -> int:
        """The number of batches of this process."""
        whole, rest = divmod(self.num_samples, self.batch_size)
        return whole + bool(rest and not self.drop_last)

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the epoch, which is the seed of the next shuffle."""
        self.epoch = epoch
