"""Data sets with an index, and how batches are drawn from them."""

from fluidjax.dataloader.batch_sampler import BatchSampler
from fluidjax.dataloader.dataset import Dataset

__all__ = ["Dataset", "BatchSampler"]
