"""How many operations a network takes, as Paddle 1.8.5 counts them: flops that strategies are told are in its count."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fluidjax.contrib.slim.graph.graph_wrapper import OpWrapper


def _one_sample(shape: Sequence[int]) -> list[int]:
    return [1 if shape[0] == -1 else shape[0], *shape[1:]]


def _convolution(op: OpWrapper) -> float:
    """2 H W O (K + bias) with K = kh kw C / groups; C is the filter's, which grouping has already divided once."""
    out, channels, *kernel = op.inputs("Filter")[0].shape()
    places = prod(op.outputs("Output")[0].shape()[2:])
    products = prod(kernel) * (channels / op.attr("groups"))
    return 2 * places * out * (products + (1 if op.inputs("Bias") else 0))


def _pooling(op: OpWrapper) -> float:
    return prod(op.outputs("Out")[0].shape()[1:]) * op.attr("ksize")[0] ** 2


def _product(op: OpWrapper) -> float:
    """Of the first two dims of X and the columns of Y."""
    rows, inner = _one_sample(op.inputs("X")[0].shape())[:2]
    return 2 * rows * inner * op.inputs("Y")[0].shape()[1]


def _elements(op: OpWrapper) -> float:
    return prod(_one_sample(op.inputs("X")[0].shape()))


_CONVOLUTIONS: dict[str, Callable[[OpWrapper], float]] = dict.fromkeys(["conv2d", "depthwise_conv2d"], _convolution)
_OTHERS: dict[str, Callable[[OpWrapper], float]] = {
    "pool2d": _pooling,
    "mul": _product,
    **dict.fromkeys(["relu", "sigmoid", "batch_norm"], _elements),
}


def flops(ops: Sequence[OpWrapper], only_conv: bool) -> float:
    """The sum over convolutions, and unless ``only_conv`` over pools, products and elementwise ops."""
    counts = _CONVOLUTIONS if only_conv else _CONVOLUTIONS | _OTHERS
    return sum(counts[op.type()](op) for op in ops if op.type() in counts)
