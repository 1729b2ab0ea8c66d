"""What a strategy of compression may do, and when."""

from __future__ import annotations

from typing import Any

__all__ = ["Strategy"]


class Strategy:
    """Base class: what is called between epochs and batches, with the ``Context`` of the compression.

    Args:
        start_epoch, end_epoch: the first epoch that the strategy is for, and the one it ends with.
    """

    def __init__(self, start_epoch: int = 0, end_epoch: int = 0):
        self.start_epoch = start_epoch
        self.end_epoch = end_epoch

    def __getstate__(self) -> dict[str, Any]:
        """What a checkpoint keeps: all but the epochs, which are the configuration's."""
        return {name: value for name, value in vars(self).items() if name not in ("start_epoch", "end_epoch")}

    def on_compression_begin(self, context: Any) -> None:
        """Called once, before the first epoch."""

    def on_epoch_begin(self, context: Any) -> None:
        """Called before each epoch."""

    def on_epoch_end(self, context: Any) -> None:
        """Called after each epoch, when it has been evaluated and saved."""

    def on_batch_begin(self, context: Any) -> None:
        """Called before each batch."""

    def on_batch_end(self, context: Any) -> None:
        """Called after each batch."""

    def on_compression_end(self, context: Any) -> None:
        """Called once, after the last epoch."""

    def restore_from_checkpoint(self, context: Any) -> None:
        """Called before the first epoch if a checkpoint was found: to make again what it changed in the graphs."""
