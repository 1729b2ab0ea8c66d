"""Activations as layers."""

from __future__ import annotations

from typing import Any

from fluidjax import layers
from fluidjax.dygraph.layers import Layer
from fluidjax.paddle.nn.functional import hsigmoid

__all__ = ["HSigmoid", "LogSoftmax", "ReLU", "Sigmoid"]


class ReLU(Layer):
    """max(x, 0).

    Args:
        inplace: accepted as in Paddle: a result is a variable of its own.
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()

    def forward(self, input: Any) -> Any:
        """The function of each element."""
        return layers.relu(input)


class Sigmoid(Layer):
    """1 / (1 + exp(-x)).

    Args:
        inplace: accepted as in Paddle: a result is a variable of its own.
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()

    def forward(self, input: Any) -> Any:
        """The function of each element."""
        return layers.sigmoid(input)


class LogSoftmax(Layer):
    """x - log(sum(exp(x))) along an axis.

    Args:
        axis: the axis, the last by default; -1 for a variable of one axis or more.
    """

    def __init__(self, axis: int | None = None) -> None:
        super().__init__()
        self._axis = axis

    def forward(self, input: Any) -> Any:
        """The function along the axis."""
        return layers.log_softmax(input, self._axis)


class HSigmoid(Layer):
    """The loss of hierarchical sigmoid, and its tree of classifiers; see ``layers.hsigmoid``.

    Args:
        feature_size: the size of a row of the input.
        num_classes: how many classes there are.
        param_attr, bias_attr: of the parameters; ``bias_attr`` False: no bias.
        is_custom: whether the tree is given with each call.
        is_sparse: whether the gradient is made of rows.
    """

    def __init__(
        self,
        feature_size: int,
        num_classes: int,
        param_attr: Any = None,
        bias_attr: Any = None,
        is_custom: bool = False,
        is_sparse: bool = False,
        dtype: str = "float32",
    ) -> None:
        super().__init__()
        if num_classes < 2 and not is_custom:
            raise ValueError(f"HSigmoid: num_classes is {num_classes}. Expected 2 or more. Pass the number of classes.")
        rows = num_classes if is_custom else num_classes - 1
        self._num_classes, self._is_sparse = num_classes, is_sparse
        self.weight = self.create_parameter([rows, feature_size], attr=param_attr, dtype=dtype)
        self.bias = self.create_parameter([rows, 1], attr=bias_attr, dtype=dtype, is_bias=True)

    def forward(self, input: Any, label: Any, path_table: Any = None, path_code: Any = None) -> Any:
        """The loss of each row, [N, 1]; ``path_table`` and ``path_code`` are a tree of one's own."""
        return hsigmoid(input, label, self.weight, self.bias, self._num_classes, path_table, path_code, self._is_sparse)
