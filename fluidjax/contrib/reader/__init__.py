"""Readers for several trainers."""

from fluidjax.contrib.reader.distributed_reader import distributed_batch_reader as distributed_batch_reader

__all__ = ["distributed_batch_reader"]
