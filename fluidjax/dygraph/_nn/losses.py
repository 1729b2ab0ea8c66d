"""Losses as layers."""

from __future__ import annotations

from typing import Any

from fluidjax.dygraph.layers import Layer
from fluidjax.framework import Variable
from fluidjax.layers import nn, ops

_REDUCTIONS = ("sum", "mean", "none")


def _check_reduction(owner: str, reduction: str) -> None:
    if reduction not in _REDUCTIONS:
        raise ValueError(
            f"The value of 'reduction' in {owner} should be 'sum', 'mean' or 'none', but received {reduction}, which "
            "is not allowed."
        )


def _reduced(loss: Variable, reduction: str) -> Variable:
    if reduction == "none":
        return loss
    return nn.reduce_sum(loss) if reduction == "sum" else nn.reduce_mean(loss)


class _Loss(Layer):
    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        _check_reduction(type(self).__name__, reduction)
        self.reduction = reduction


class MSELoss(_Loss):
    """(input - label) ** 2, reduced by mean, sum or not at all ("none")."""

    def forward(self, input: Variable, label: Variable) -> Variable:
        """[1], or shaped like the input."""
        return _reduced(ops.square(nn.elementwise_sub(input, label)), self.reduction)


class L1Loss(_Loss):
    """|input - label|, reduced by mean, sum or not at all ("none")."""

    def forward(self, input: Variable, label: Variable) -> Variable:
        """[1], or shaped like the input."""
        return _reduced(ops.abs(nn.elementwise_sub(input, label)), self.reduction)


class BCELoss(Layer):
    """-label * log(input) - (1 - label) * log(1 - input), times ``weight``; reduced by mean, sum or not ("none")."""

    def __init__(self, weight: Variable | None = None, reduction: str = "mean") -> None:
        super().__init__()
        _check_reduction("bce_loss", reduction)
        self.weight = weight
        self.reduction = reduction

    def forward(self, input: Variable, label: Variable) -> Variable:
        """[1], or shaped like the input."""
        loss = self._helper.run("bce_loss", {"X": input, "Label": label}, {})
        if self.weight is not None:
            loss = nn.elementwise_mul(loss, self.weight)
        return _reduced(loss, self.reduction)


class NLLLoss(Layer):
    """-weight[label] * input[label]: its mean weighted by ``weight``, its sum, or unreduced ("none").

    Args:
        weight: weight of each class, [C].
        reduction: "mean", "sum" or "none".
        ignore_index: label of rows with zero loss.
    """

    def __init__(self, weight: Variable | None = None, reduction: str = "mean", ignore_index: int = -100) -> None:
        super().__init__()
        self._weight = weight
        self._reduction = reduction
        self._ignore_index = ignore_index

    def forward(self, input: Variable, label: Variable) -> Variable:
        """[1] or shaped like the label, for log probabilities input [N, C, ...] and label int64 [N, ...]."""
        _check_reduction("nll_loss", self._reduction)
        shape = list(label.shape)
        folded = len(input.shape) not in (2, 4)
        if folded:
            n, c = max(input.shape[0], 0), input.shape[1]  # 0: as many as there are
            input = nn.reshape(input, [n, c, 1, -1])
            label = nn.reshape(label, [n, 1, -1])
        inputs = {"X": input, "Label": label, "Weight": self._weight}
        attrs: dict[str, Any] = {"reduction": self._reduction, "ignore_index": self._ignore_index}
        out = self._helper.run("nll_loss", inputs, attrs, "Out", ("Out", "Total_weight"))
        return nn.reshape(out, shape) if folded and self._reduction == "none" else out
