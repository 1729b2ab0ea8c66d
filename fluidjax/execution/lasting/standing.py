"""Feeds in memory that stays: a run copies them there, and XLA computes on that memory in place.

XLA copies an array of the host that it is given into memory of its own, which takes a microsecond or two and, from
100 KB on, a thread of its own: 40 us for a batch of 200 KB, 4 us of which are the copy. Arrays of the device that lie
on the host's memory are given as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from fluidjax.base.dispatch import returns_when_done
from fluidjax.base.values import LoDTensor
from fluidjax.execution.steps.compiled_form import Compiled
from fluidjax.execution.steps.in_place import MOST, room
from fluidjax.execution.steps.kept_parts import taken
from fluidjax.execution.steps.seeds import next_seed
from fluidjax.execution.steps.spreading import Spreading
from lowering.engine.expected import as_expected
from lowering.values import LoDArray


class Fed(NamedTuple):
    """Where one feed stands: arrays of this ``dtype`` and ``shape`` fit into ``memory``, whose first axis is that of
    the devices where it is ``spread``.
    """

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]
    memory: np.ndarray
    spread: bool


class Rows(NamedTuple):
    """Where the rows of a ragged feed stand: ``padded`` to the room, on memory that stays, and their ``number``."""

    name: str
    padded: LoDArray
    number: np.ndarray

    @property
    def bytes(self) -> int:
        """The memory that they take."""
        return self.padded.data.nbytes + sum(offsets.nbytes for offsets in self.padded.lod)

    def take(self, fed: LoDTensor) -> None:
        """Copy rows and offsets that fit; what is left is filled as padding is (I1)."""
        data, memory, rows = fed._value, self.padded.data, len(fed._value)
        memory[:rows] = data
        memory[rows:] = data[0] if rows else 0
        for offsets, level in zip(self.padded.lod, fed._lod, strict=True):
            offsets[: len(level)] = level
            offsets[len(level) :] = level[-1]
        self.number[...] = rows


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

    __slots__ = ("_feeds", "_rows", "_seed", "compiled", "given", "key", "looks", "overtakes", "ran", "values")

    def __init__(
        self,
        compiled: Compiled,
        kept: Sequence[Any],
        feeds: Mapping[str, Any],
        arrays: Sequence[Any],
        seed: Sequence[Any],
        shapes: Sequence[tuple[int, ...]] | None = None,
    ):
        self.compiled = compiled
        self.given = (*kept, *arrays, *compiled.numbers, *taken(compiled.parts, kept))
        self._seed, self.key = seed
        self.values = [*kept, *feeds.values()]
        self.looks = compiled.checks is not None or bool(compiled.executable.scratch)
        self.overtakes = not returns_when_done()
        self.ran = False
        plain = {n: m for n, m in feeds.items() if type(m) is np.ndarray}
        fed = [m.shape for m in plain.values()] if shapes is None else shapes
        self._feeds = tuple(
            Fed(n, m.dtype, shape, m, m.shape != shape) for (n, m), shape in zip(plain.items(), fed, strict=True)
        )
        self._rows = tuple(Rows(n, m, np.asarray(m.nrows)) for n, m in feeds.items() if type(m) is LoDArray)

    @property
    def bytes(self) -> int:
        """The memory that the feeds here take."""
        return sum(fed.memory.nbytes for fed in self._feeds) + sum(rows.bytes for rows in self._rows)

    @staticmethod
    def of(
        compiled: Compiled,
        kept: Sequence[Any],
        names: Sequence[str],
        feeds: Sequence[Any],
        seed: Any,
        most: int = MOST,
        spread: Spreading | None = None,
    ) -> Standing | None:
        """Memory for such feeds, on the devices of ``spread`` if there are several; None where there is none: not all
        are arrays of the host, or they take more than ``most`` bytes.
        """
        leaves, structure = jax.tree_util.tree_flatten([*feeds, *(() if seed is None else (seed,))])
        if not all(type(leaf) is np.ndarray for leaf in leaves) or sum(leaf.nbytes for leaf in leaves) > most:
            return None
        if spread is None:
            found = [room(leaf) for leaf in leaves]
        else:
            found = [spread.room(name, leaf) for name, leaf in zip((*names, ""), leaves, strict=False)]
        made = [each for each in found if each is not None]
        if len(made) < len(leaves):
            return None
        memory, arrays = [memory for memory, _ in made], [array for _, array in made]
        hosts, given = (jax.tree_util.tree_unflatten(structure, each) for each in (memory, arrays))
        seeds = (None, None) if seed is None else (hosts.pop(), given.pop())
        shapes = None if spread is None else [feed.shape for feed in feeds]
        return Standing(compiled, kept, dict(zip(names, hosts, strict=True)), given, seeds, shapes)

    def take(self, feed: Mapping[str, Any], program: Any) -> bool:
        """Copy what is fed, and draw the run's seed; False where a feed has another form, and then none is drawn."""
        for name, dtype, shape, memory, spread in self._feeds:
            fed = feed[name]
            if type(fed) is not np.ndarray or fed.dtype != dtype or fed.shape != shape:
                return False
            memory[...] = fed.reshape(memory.shape) if spread else fed
        for rows in self._rows:
            rows.take(feed[rows.name])
        if self._rows and not as_expected(self.compiled.traced.expected, self.values):
            return False
        if self._seed is not None:
            self._seed[...] = next_seed(program)
        return True

    def look(self) -> None:
        """Raise what is known of the feeds before the step; RuntimeError where there is no memory for it."""
        if self.compiled.checks is not None:
            self.compiled.checks.before(self.values)
        if self.compiled.executable.scratch:
            self.compiled.executable.reserve()
