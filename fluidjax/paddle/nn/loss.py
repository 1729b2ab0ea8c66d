"""Losses as layers."""

from __future__ import annotations

from typing import Any

from fluidjax import layers
from fluidjax.dygraph import BCELoss, L1Loss, MSELoss, NLLLoss
from fluidjax.dygraph.layers import Layer

__all__ = ["BCELoss", "CrossEntropyLoss", "L1Loss", "MSELoss", "NLLLoss"]


class CrossEntropyLoss(Layer):
    """The cross entropy between classes' scores and labels.

    Args:
        weight: a variable with the weight of each class.
        reduction: 'mean', 'sum' or 'none'. ValueError for another.
        ignore_index: the label of rows that do not count.
    """

    def __init__(self, weight: Any = None, reduction: str = "mean", ignore_index: int = -100) -> None:
        super().__init__()
        if reduction not in ("sum", "mean", "none"):
            raise ValueError(
                "The value of 'reduction' in CrossEntropyLoss should be 'sum', 'mean' or 'none', received"
                f" {reduction!r}. Pass one of them."
            )
        self.weight, self.reduction, self.ignore_index = weight, reduction, ignore_index

    def forward(self, input: Any, label: Any) -> Any:
        """The loss of ``input`` [N, C, ...], scores, and ``label`` [N, ...] or [N, 1, ...], int64.

        [1]; for 'none' shaped like the label.
        """
        without = len(label.shape) == len(input.shape) - 1
        label = layers.unsqueeze(label, [1]) if without else label
        out = layers.softmax_with_cross_entropy(input, label, ignore_index=self.ignore_index, axis=1)
        counted = layers.not_equal(label, layers.full_like(label, self.ignore_index))
        if self.weight is None:
            counted = layers.cast(counted, input.dtype)
        else:
            known = layers.elementwise_mul(label, layers.cast(counted, label.dtype))
            weights = layers.gather_nd(self.weight, layers.unsqueeze(known, [len(known.shape)]))
            counted = layers.elementwise_mul(weights, layers.cast(counted, input.dtype))
            out = layers.elementwise_mul(out, counted)
        if self.reduction == "sum":
            return layers.reduce_sum(out)
        if self.reduction == "mean":
            return layers.elementwise_div(layers.reduce_sum(out), layers.reduce_sum(counted))
        return layers.squeeze(out, [1]) if without else out
