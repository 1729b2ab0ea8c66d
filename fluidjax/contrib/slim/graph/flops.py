"""How many operations a network takes, as Paddle 1.8.5 counts them: flops that strategies are told are in its count."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from fluidjax.framework import Operator


def _shape(op: Operator, names: Sequence[str]) -> Sequence[int]:
    return op.block._var_recursive(names[0]).shape


def _one_sample(shape: Sequence[int]) -> list[int]:
    return [1 if shape[0] == -1 else shape[0], *shape[1:]]


def _convolution(op: Operator) -> float:
    """2 H W O (K + bias) with K = kh kw C / groups; C is the filter's, which grouping has already divided once."""
    out, channels, *kernel = _shape(op, op.input("Filter"))
    places = prod(_shape(op, op.output("Output"))[2:])
    products = prod(kernel) * (channels / op.attr("groups"))
    return 2 * places * out * (products + (1 if op.input("Bias") else 0))


def _pooling(op: Operator) -> float:
    return prod(_shape(op, op.output("Out"))[1:]) * op.attr("ksize")[0] ** 2


def _product(op: Operator) -> float:
    """Of the first two dims of X and the columns of Y."""
    rows, inner = _one_sample(_shape(op, op.input("X")))[:2]
    return 2 * rows * inner * _shape(op, op.input("Y"))[1]


def _elements(op: Operator) -> float:
    return prod(_one_sample(_shape(op, op.input("X"))))


_CONVOLUTIONS: dict[str, Callable[[Operator], float]] = dict.fromkeys(["conv2d", "depthwise_conv2d"], _convolution)
_OTHERS: dict[str, Callable[[Operator], float]] = {
    "pool2d": _pooling,
    "mul": _product,
    **dict.fromkeys(["relu", "sigmoid", "batch_norm"], _elements),
}


def flops(ops: Sequence[Operator], only_conv: bool) -> float:
    """The sum over convolutions, and unless ``only_conv`` over pools, products and elementwise ops."""
    counts = _CONVOLUTIONS if only_conv else _CONVOLUTIONS | _OTHERS
    return sum(counts[op.type](op) for op in ops if op.type in counts)
