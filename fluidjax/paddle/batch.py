"""``paddle.batch``: converts a reader of samples to a reader of batches."""

from __future__ import annotations

from fluidjax.readers.batching import batch

__all__ = ["batch"]
