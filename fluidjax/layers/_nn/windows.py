"""Window arguments of convolution and pooling layers: sizes, strides, and the ways to specify padding."""

from __future__ import annotations

from typing import Any

from fluidjax.base.errors import ArgumentError, explain
from fluidjax.framework import Variable
from fluidjax.layers.utils import convert_to_list

__all__: list[str] = []

# Data formats by number of spatial dims: channels first, channels last.
FORMATS = {2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}


def channel_last(data_format: str, formats: tuple[str, str], layer: str) -> bool:
    """Whether channels come last; raises ValueError unless ``data_format`` is one of ``formats`` (first, last)."""
    if data_format not in formats:
        raise ArgumentError(
            f"data_format of {layer} should be {formats[0]!r} or {formats[1]!r}, received {data_format!r}. Use one of"
            " the two."
        )
    return data_format == formats[1]


def check_rank(input: Variable, n: int, layer: str) -> None:
    """Raise ValueError unless the input has ``n`` spatial dimensions besides batch and channels."""
    if len(input.shape) != n + 2:
        raise ArgumentError(
            explain(
                f"{layer}: input {input.name!r} is not {n + 2}-D",
                f"[batch, channels, {'depth, ' if n == 3 else ''}height, width], or channels last",
                f"{list(input.shape)}",
                "reshape it with fluid.layers.reshape, or declare the data with all of its dims",
            )
        )


def _is_pairs(padding: Any) -> bool:
    return isinstance(padding, (list, tuple)) and bool(padding) and isinstance(padding[0], (list, tuple))


def _spatial_pairs(padding: Any, n: int, last: bool, layer: str) -> list[int]:
    """(low, high) for each spatial axis, from one pair per tensor axis; those of batch and channels must be 0."""
    if len(padding) != n + 2:
        raise ArgumentError(
            f"padding of {layer} has {len(padding)} pairs; expected {n + 2}, one for each axis. Give [0, 0] for batch"
            " and channel."
        )
    pairs = [list(p) for p in padding]
    outer = [pairs[0], pairs[-1 if last else 1]]
    if any(p != [0, 0] for p in outer):
        raise ArgumentError(
            f"padding of {layer}, {padding!r}, pads the batch or channel axis; expected [0, 0] there. Pad spatial axes"
            " alone."
        )
    spatial = pairs[1:-1] if last else pairs[2:]
    return [v for pair in spatial for v in pair]


def window_padding(padding: Any, n: int, last: bool, layer: str) -> tuple[list[int], str]:
    """The ``paddings`` and ``padding_algorithm`` attributes for a padding argument.

    Args:
        padding: "SAME" or "VALID"; an int; n ints; 2n ints (low and high of each axis); or one pair per tensor axis.
        n: number of spatial axes.
        last: whether channels come last.
        layer: name of the layer, for error messages.

    Raises:
        ValueError: unknown string, wrong number of values, or padding of the batch or channel axis.
    """
    if isinstance(padding, str):
        algorithm = padding.upper()
        if algorithm not in ("SAME", "VALID"):
            raise ArgumentError(
                f"Unknown padding {padding!r} in {layer}. It can only be 'SAME' or 'VALID', or numbers. Use one."
            )
        return [0] * n, algorithm
    if _is_pairs(padding):
        padding = _spatial_pairs(padding, n, last, layer)
    if isinstance(padding, (list, tuple)) and len(padding) == 2 * n:
        sides = convert_to_list(padding, 2 * n, "padding")
        symmetric = all(sides[2 * i] == sides[2 * i + 1] for i in range(n))
        return (sides[::2] if symmetric else sides), "EXPLICIT"
    return convert_to_list(padding, n, "padding"), "EXPLICIT"
