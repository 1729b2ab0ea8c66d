"""``paddle.incubate.hapi``: batches of a share of the data, and pictures that are changed at random."""

from fluidjax.paddle.incubate.hapi import distributed, vision

__all__ = ["distributed", "vision"]
