"""What else has to be cut when a convolution loses filters.

A filter is a channel of the convolution's output. Whatever reads this channel loses it too: the inputs of the next
convolutions (axis 1 of their filters), a depthwise convolution and what follows it, normalisation, biases, and the
rows of a product after the features are laid side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import NamedTuple

import numpy as np

from fluidjax.base.errors import explain
from fluidjax.contrib.slim.graph import GraphWrapper, OpWrapper, VarWrapper

Channels = dict[str, np.ndarray]  # name of a variable -> which of its channels are cut
CONVOLUTIONS = ("conv2d", "depthwise_conv2d")


class Cut(NamedTuple):
    """The slices ``indices`` along ``axis`` of a parameter, to be taken away."""

    param: VarWrapper
    axis: int
    indices: np.ndarray


def cuts(graph: GraphWrapper, param: VarWrapper, indices: np.ndarray) -> Iterator[Cut]:
    """All that is cut with the filters ``indices`` of a convolution, itself first.

    Raises ValueError if ``param`` is not the filter of convolutions.
    """
    users = [op for op in param.inputs() if not op.is_bwd_op() and not op.is_opt_op()]
    if not users or any(op.type() not in CONVOLUTIONS for op in users):
        kinds = ", ".join(sorted({op.type() for op in users})) or "no op"
        todo = "write a pattern for pruned_params that matches the filters alone"
        raise ValueError(
            explain(f"{param.name()} cannot be pruned", "a convolution's filter", f"read by {kinds}", todo)
        )
    yield Cut(param, 0, indices)
    channels: Channels = {var.name(): indices for op in users for var in op.outputs("Output")}
    for op in graph.ops():  # in order, so that what an op reads is known
        if not op.is_bwd_op() and not op.is_opt_op() and any(name in channels for name in op.reads()):
            yield from _RULES.get(op.type(), _passed_on)(op, graph, channels)


def _first(op: OpWrapper, channels: Channels) -> np.ndarray:
    return next(channels[name] for name in op.reads() if name in channels)


def _forward(op: OpWrapper, channels: Channels, indices: np.ndarray) -> None:
    channels.update(dict.fromkeys(op.writes(), indices))


def _passed_on(op: OpWrapper, graph: GraphWrapper, channels: Channels) -> Iterator[Cut]:
    """Channels stay channels; no parameter has them."""
    _forward(op, channels, _first(op, channels))
    yield from ()


def _convolution(op: OpWrapper, graph: GraphWrapper, channels: Channels) -> Iterator[Cut]:
    if op.attr("groups") != 1:
        todo = "leave the filters before it out of pruned_params"
        raise ValueError(
            explain(
                "pruning reaches a grouped convolution", "groups of 1, or one a channel", str(op.attr("groups")), todo
            )
        )
    yield Cut(op.inputs("Filter")[0], 1, _first(op, channels))


def _depthwise(op: OpWrapper, graph: GraphWrapper, channels: Channels) -> Iterator[Cut]:
    indices = _first(op, channels)
    yield Cut(op.inputs("Filter")[0], 0, indices)
    _forward(op, channels, indices)


def _with_vectors(op: OpWrapper, graph: GraphWrapper, channels: Channels) -> Iterator[Cut]:
    """Parameters with one number a channel: biases, and those of a normalisation."""
    indices = _first(op, channels)
    for var in op.all_inputs():
        if graph.is_parameter(var):
            yield Cut(var, 0, indices)
    _forward(op, channels, indices)


def _normalised(op: OpWrapper, graph: GraphWrapper, channels: Channels) -> Iterator[Cut]:
    indices = _first(op, channels)
    for slot in ("Mean", "Variance", "Scale", "Bias"):
        yield Cut(op.inputs(slot)[0], 0, indices)
    _forward(op, channels, indices)


def _product(op: OpWrapper, graph: GraphWrapper, channels: Channels) -> Iterator[Cut]:
    """Channel c of features [n, c, ...] of s places becomes the rows c s to c s + s - 1 of Y."""
    x = op.inputs("X")[0]
    places = prod(x.shape()[2:])
    rows = np.add.outer(channels[x.name()] * places, np.arange(places)).reshape(-1)
    yield Cut(op.inputs("Y")[0], 0, rows)


def _joined(op: OpWrapper, graph: GraphWrapper, channels: Channels) -> Iterator[Cut]:
    parts, start = [], 0
    for var in op.inputs("X"):
        if var.name() in channels:
            parts.append(channels[var.name()] + start)
        start += var.shape()[1]
    _forward(op, channels, np.concatenate(parts))
    yield from ()


_RULES: dict[str, Callable[[OpWrapper, GraphWrapper, Channels], Iterator[Cut]]] = {
    "conv2d": _convolution,
    "depthwise_conv2d": _depthwise,
    "elementwise_add": _with_vectors,
    "batch_norm": _normalised,
    "mul": _product,
    "concat": _joined,
}


def accumulators(graph: GraphWrapper, param: VarWrapper) -> list[VarWrapper]:
    """What optimizers keep for each number of a parameter, such as moments."""
    kept = [out for op in param.outputs() if op.is_opt_op() for out in op.all_outputs()]
    return [v for v in kept if graph.is_persistable(v) and v != param and v.shape() == param.shape()]
