"""What a step's block is given that comes from the host: it is copied to memory that stays (see ``in_place``).

XLA takes two microseconds for each array of the host, and from 100 KB on a thread of its own; the copies below take
the tenth part of a microsecond and as long as the memory takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from fluidjax.base.dispatch import returns_when_done
from fluidjax.eager.values import Value
from fluidjax.execution.steps.in_place import MOST, in_place
from lowering.engine.host_arrays import empty

# Leaves without memory that are others, so often, and so often of all runs that were no repetitions, are not compared.
_MISSES, _WORTH = 8, 2


class Last(NamedTuple):
    """The last run of a block, for the next one.

    Attributes:
        same, known: the leaves that have been the same values so far, and these.
        written: the other leaves, and where each of them is copied to.
        arguments: what the block was given.
    """

    same: list[int]
    known: list[Value]
    written: list[tuple[int, np.ndarray]]
    arguments: list[Any]


class Fed:
    """Memory for those of a block's arguments that come from the host; for none where it would not be used in place.

    Args:
        arguments: of a run; later ones have their shapes and dtypes.

    Attributes:
        last: the last run; None if nothing is known of it.
    """

    __slots__ = ("_before", "_misses", "_runs", "_stands", "last")

    def __init__(self, arguments: Sequence[Any]) -> None:
        self.last: Last | None = None
        self._before: Last | None = None
        self._runs = self._misses = 0
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

    def again(self, leaves: Sequence[Value]) -> list[Any] | None:
        """The arguments of the last run, once the leaves that may be others are copied to their memory.

        None if one of the rest is another one, or if one is not on the host any more.
        """
        last = self.last
        if last is None or [*map(leaves.__getitem__, last.same)] != last.known:
            return None
        for k, memory in last.written:
            array = leaves[k].array
            if array.__class__ is not np.ndarray:
                return None
            memory[...] = array
        return last.arguments

    def noted(self, numbers: Sequence[int], leaves: Sequence[Value], arguments: list[Any]) -> Last | None:
        """What ``last`` is to be once a run is done; None if it is of no use.

        Args:
            numbers: the leaf of each argument.
            arguments: as ``put`` left them.
        """
        self._runs += 1
        if self._misses > _MISSES and self._misses * _WORTH > self._runs:
            return None
        memories = {numbers[n]: memory for n, memory, _ in self._stands}
        before, written = self._before, set[int]()
        if before is not None:
            others = {k for k, value in zip(before.same, before.known, strict=True) if leaves[k] is not value}
            self._misses += not others <= memories.keys()
            written = {k for k, _ in before.written} | (others & memories.keys())
        same = [k for k in numbers if k not in written]
        return Last(same, [leaves[k] for k in same], [(k, memories[k]) for k in written], arguments)

    @staticmethod
    def wait(results: Sequence[Any]) -> None:
        """Wait until a run is done: one that was given what is not there yet is computed by a thread of XLA's.

        The results of a run are there all at once.
        """
        if not results[0].is_ready():
            jax.block_until_ready(results)
