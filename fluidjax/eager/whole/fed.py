"""What a step's block is given that comes from the host: it is copied to memory that stays (see ``in_place``).

XLA takes two microseconds for each array of the host, and from 100 KB on a thread of its own; the copies below take
the tenth part of a microsecond and as long as the memory takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxlib.xla_client import ArrayImpl

from fluidjax.base.dispatch import returns_when_done
from fluidjax.eager.values import Value
from fluidjax.execution.steps.in_place import MOST, in_place
from lowering.host_arrays import empty


class Last(NamedTuple):
    """The last run of a block, for the next one.

    Attributes:
        same, known: the leaves that have been the same values so far, and these.
        written: other leaves, and where each of them is copied to.
        moving: the rest, which are on the device, and which argument each of them is.
        arguments: what the block is given besides these.
    """

    same: list[int]
    known: list[Value]
    written: list[tuple[int, np.ndarray]]
    moving: list[tuple[int, int]]
    arguments: list[Any]

    def filled(self, leaves: Sequence[Value]) -> list[Any] | None:
        """The arguments of the next run, once what may be others is copied to its memory.

        None if one of the rest is another one, or if one is not where it was.
        """
        if [*map(leaves.__getitem__, self.same)] != self.known:
            return None
        for k, memory in self.written:
            array = leaves[k].array
            if array.__class__ is not np.ndarray:
                return None
            memory[...] = array
        if not self.moving:
            return self.arguments
        arguments = [*self.arguments]
        for k, n in self.moving:
            array = arguments[n] = leaves[k].array
            if array.__class__ is not ArrayImpl:
                return None
        return arguments

    def others(self, leaves: Sequence[Value]) -> set[int]:
        """The leaves that are others now, or were before."""
        now = {k for k, value in zip(self.same, self.known, strict=True) if leaves[k] is not value}
        return now.union([k for k, _ in self.written], [k for k, _ in self.moving])


class Fed:
    """Memory for those of a block's arguments that come from the host; for none where it would not be used in place.

    Args:
        arguments: of a run; later ones have their shapes and dtypes.

    Attributes:
        last: the last run; None if nothing is known of it.
    """

    __slots__ = ("_before", "_stands", "last")

    def __init__(self, arguments: Sequence[Any]) -> None:
        self.last: Last | None = None
        self._before: Last | None = None
        hosts = [(n, array) for n, array in enumerate(arguments) if array.__class__ is np.ndarray]
        self._stands: list[tuple[int, np.ndarray, Any]] = []  # with the device's array on the memory
        if returns_when_done() and sum([array.nbytes for _, array in hosts]) <= MOST:
            for n, array in hosts:
                memory = empty(array.shape, array.dtype)
                if (on_device := in_place(memory)) is not None:
                    self._stands.append((n, memory, on_device))

    def put(self, arguments: list[Any]) -> None:
        """Replace arguments by the device's arrays, once they are copied there. Whatever was run before is done."""
        self._before, self.last = self.last or self._before, None
        for n, memory, on_device in self._stands:
            array = arguments[n]
            if array.__class__ is np.ndarray:
                memory[...] = array
                arguments[n] = on_device

    def noted(self, numbers: Sequence[int], leaves: Sequence[Value], arguments: Sequence[Any]) -> Last:
        """What ``last`` is to be once a run is done.

        Args:
            numbers: the leaf of each argument.
            arguments: as ``put`` left them.
        """
        before, memories = self._before, {n: (memory, array) for n, memory, array in self._stands}
        others = set[int]() if before is None else before.others(leaves)
        places = {k: n for n, k in enumerate(numbers)}
        same = [k for k in numbers if k not in others]
        last = Last(same, [leaves[k] for k in same], [], [], [*arguments])
        for k in others:
            n = places[k]
            if n in memories:
                memory, last.arguments[n] = memories[n]
                last.written.append((k, memory))
            else:
                last.moving.append((k, n))
                last.arguments[n] = None  # others may take its memory over
        return last

    @staticmethod
    def wait(results: Sequence[Any]) -> None:
        """Wait until a run is done: one that was given what is not there yet is computed by a thread of XLA's.

        The results of a run are there all at once.
        """
        if not results[0].is_ready():
            jax.block_until_ready(results)
