"""Which values a batch of pending ops has to give, and where its leaves are."""

from __future__ import annotations

import sys
from itertools import compress
from operator import attrgetter

import jax

from fluidjax.eager.values import Value


def to_device(values: list[Value]) -> None:
    """Move values from the host to the device, which each call would repeat otherwise.

    It takes as long as two ops: what an op on the host gives, and the next step replaces, is left there.
    """
    for value in values:
        value.array = jax.device_put(value.array, may_alias=False)  # jax.numpy.array compiles a copy for each shape


def referenced(outputs: dict[int, Value], end: int) -> tuple[int, ...]:
    """The numbers below `end` of the outputs with references other than the dict's."""
    alive = tuple(sorted(compress(outputs, map(_ALONE.__lt__, map(sys.getrefcount, outputs.values())))))
    return alive if not alive or alive[-1] < end else tuple([code for code in alive if code < end])


_ALONE = next(map(sys.getrefcount, {0: object()}.values()))
array_of = attrgetter("array")
