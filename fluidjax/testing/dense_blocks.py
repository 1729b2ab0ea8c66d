"""Blocks of ops that work row by row."""

from __future__ import annotations

from typing import Any

import fluidjax as fluid
from fluidjax.testing.builder import WIDTH, Block, Builder

layers = fluid.layers

_UNARY = ("tanh", "sigmoid", "square", "softplus", "sin", "softsign")
_BINARY = ("elementwise_add", "elementwise_sub", "elementwise_mul")


def unary(build: Builder, x: Any) -> Any:
    """A smooth function of each element, one of ``_UNARY``."""
    return getattr(layers, build.choose(_UNARY))(x)


def binary(build: Builder, x: Any) -> Any:
    """The sum, difference or product with another value of the pool."""
    return getattr(layers, build.choose(_BINARY))(x, build.pick())


def weight(build: Builder, x: Any) -> Any:
    """x W with a parameter [WIDTH, WIDTH]."""
    return layers.mul(x, build.parameter([WIDTH, WIDTH]))


def bias(build: Builder, x: Any) -> Any:
    """x + b with a parameter [WIDTH], broadcast over the rows."""
    return layers.elementwise_add(x, build.parameter([WIDTH]), axis=1)


def shared(build: Builder, x: Any) -> Any:
    """One parameter used twice: its gradients are summed."""
    both = build.parameter([WIDTH, WIDTH])
    return layers.mul(layers.tanh(layers.mul(x, both)), both)


def stopped(build: Builder, x: Any) -> Any:
    """A branch without gradients."""
    branch = layers.scale(build.pick(), scale=0.5)
    branch.stop_gradient = True
    return layers.elementwise_mul(x, branch)


def halves(build: Builder, x: Any) -> Any:
    """Swaps the two halves of the columns, and applies tanh to one: split and concat."""
    left, right = layers.split(x, 2, dim=1)
    return layers.concat([layers.tanh(right), left], axis=1)


def softmax(build: Builder, x: Any) -> Any:
    """Softmax over the columns."""
    return layers.softmax(x)


def classified(build: Builder, x: Any) -> Any:
    """A classification loss per row, broadcast over its columns."""
    loss = layers.cross_entropy(layers.softmax(x), build.ids(WIDTH))
    return layers.expand(loss, [1, WIDTH])


BLOCKS: dict[str, Block] = {
    f.__name__: f for f in (unary, binary, weight, bias, shared, stopped, halves, softmax, classified)
}
