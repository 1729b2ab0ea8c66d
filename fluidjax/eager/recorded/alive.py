"""Which values a batch of pending ops has to give, and where its leaves are."""

from __future__ import annotations

import sys
from operator import attrgetter

import jax

from fluidjax.base.errors import EnforceNotMet, explain
from fluidjax.eager.values import Value


def to_device(values: list[Value]) -> None:
    """Move values from the host to the device, which each call would repeat otherwise.

    It takes as long as two ops: what an op on the host gives, and the next step replaces, is left there.
    """
    for value in values:
        value.array = jax.device_put(value.array, may_alias=False)  # jax.numpy.array compiles a copy for each shape


def referenced(outputs: dict[int, Value], end: int) -> tuple[int, ...]:
    """The numbers below `end` of the outputs with references other than the dict's."""
    count = sys.getrefcount
    return tuple(sorted([code for code, value in outputs.items() if count(value) > _ALONE and code < end]))


_ALONE = [sys.getrefcount(value) for _, value in {0: object()}.items()][0]  # of one that the dict alone refers to
array_of = attrgetter("array")


def lost() -> EnforceNotMet:
    """The error for a value whose op failed."""
    return EnforceNotMet(
        explain(
            "a variable has no value: an op that it follows from failed when it ran",
            "values of ops that succeeded",
            "a value that was never computed",
            "mend the op that the earlier error names, and compute the variable again",
        )
    )
