"""Feeds in memory that stays: a run copies them there, and XLA computes on that memory in place.

XLA copies an array of the host that it is given into memory of its own, which takes a microsecond or two and, from
100 KB on, a thread of its own: 40 us for a batch of 200 KB, 4 us of which are the copy. Arrays of the device that lie
on the host's memory are given as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fluidjax.base.dispatch import returns_when_done
from fluidjax.execution.compiled import Compiled
from fluidjax.execution.in_place import MOST, in_place
from fluidjax.execution.kept_parts import taken
from fluidjax.execution.seeds import next_seed
from lowering.engine.host_arrays import empty


class Fed(NamedTuple):
    """Where one feed stands: arrays of this ``dtype`` and ``shape`` fit into ``memory``."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]
    memory: np.ndarray


class Standing:
    """A compiled step, what it is given, and memory for feeds of its form and for the seed.

    Attributes:
        compiled: the step.
        given: (what it reads of the state, the feeds on the memory here, what else it is given).
        key: the seed on the memory here; None for runs without.
        values: the state and the feeds, for checks on the host.
        looks: whether anything is looked at before a run.
        overtakes: whether a call may return before the step is computed.
        ran: whether the step ran on these arrays.
    """

    __slots__ = ("_feeds", "_seed", "compiled", "given", "key", "looks", "overtakes", "ran", "values")

    def __init__(
        self, compiled: Compiled, kept: Sequence[Any], feeds: Sequence[Fed], arrays: Sequence[Any], seed: Sequence[Any]
    ):
        self.compiled = compiled
        self.given = (*kept, *arrays, *compiled.numbers, *taken(compiled.parts, kept))
        self._seed, self.key = seed
        self.values = [*kept, *(fed.memory for fed in feeds)]
        self.looks = compiled.checks is not None or bool(compiled.executable.scratch)
        self.overtakes = not returns_when_done()
        self.ran = False
        self._feeds = tuple(feeds)

    @staticmethod
    def of(
        compiled: Compiled, kept: Sequence[Any], names: Sequence[str], feeds: Sequence[Any], seed: Any
    ) -> Standing | None:
        """Memory for such feeds; None where there is none: not all are arrays of the host, or they are too large."""
        if not all(type(fed) is np.ndarray for fed in feeds) or sum(fed.nbytes for fed in feeds) > MOST:
            return None
        memory = [empty(fed.shape, fed.dtype) for fed in feeds]
        key = None if seed is None else empty(seed.shape, seed.dtype)
        arrays = [in_place(each) for each in (*memory, *(() if key is None else (key,)))]
        if any(array is None for array in arrays):
            return None
        fed = [Fed(name, m.dtype, m.shape, m) for name, m in zip(names, memory, strict=True)]
        seeds = (key, None if key is None else arrays.pop())
        return Standing(compiled, kept, fed, arrays, seeds)

    def take(self, feed: Mapping[str, Any], program: Any) -> bool:
        """Copy what is fed, and draw the run's seed; False where a feed has another form, and then none is drawn."""
        for name, dtype, shape, memory in self._feeds:
            fed = feed[name]
            if type(fed) is not np.ndarray or fed.dtype != dtype or fed.shape != shape:
                return False
            memory[...] = fed
        if self._seed is not None:
            self._seed[...] = next_seed(program)
        return True

    def look(self) -> None:
        """Raise what is known of the feeds before the step; RuntimeError where there is no memory for it."""
        if self.compiled.checks is not None:
            self.compiled.checks.before(self.values)
        if self.compiled.executable.scratch:
            self.compiled.executable.reserve()
