"""Small vectors of a program's state travel in one buffer: each buffer adds over a microsecond to a call.

Single numbers that are equal and stay equal (see ``equal``) are one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

T = TypeVar("T")

# Bytes of the longest vector that is packed, and how many of them at most. A step that updates more of them takes
# milliseconds anyway, and its compiled form would only grow.
_SMALL, _MOST = 4096, 64
# Vectors of one shape that are packed at most: more belong to layers that repeat, whose kernels XLA compiles once if
# they are the same. Each slice of a packed vector makes its kernel another one.
_ALIKE = 12
# Single numbers that one kernel computes: its work grows with their square.
_TOGETHER = 64
# Bytes of an array beside which nothing is packed. XLA:CPU runs the steps of a program that do not depend on each other
# at once; joined small updates finish last, on threads that the large update then lacks, and it takes twice as long.
_LARGE = 1 << 20


class Unpackable(Exception):
    """A packed variable leaves a run in a different form than it entered."""


class Unequal(Unpackable):
    """Numbers that passed as one leave a run as several."""


class Part(NamedTuple):
    """Where an array is: ``buffer`` (its position), and the elements from ``start`` to ``stop``; all, and they are no
    other array's, if None.
    """

    buffer: int
    start: int | None = None
    stop: int | None = None


@dataclass(frozen=True)
class Buffers:
    """How a list of arrays is passed: the large ones as they are, then one buffer for the small ones of each dtype.

    Attributes:
        parts: for each array, where it is among the buffers.
        shapes: for each array.
        singles: positions of the arrays that are passed alone.
        packs: positions of those that share a buffer, for each such buffer.
        equal: positions of single numbers that are one, for each such number; the first stands for all of them.
    """

    parts: tuple[Part, ...]
    shapes: tuple[tuple[int, ...], ...]
    singles: tuple[int, ...]
    packs: tuple[tuple[int, ...], ...]
    equal: tuple[tuple[int, ...], ...] = ()

    @staticmethod
    def of(
        arrays: Sequence[Any], *, pack: bool = True, fates: Mapping[int, Hashable] = MappingProxyType({})
    ) -> Buffers:
        """The buffers for these arrays; with ``pack=False``, or beside a large one, each is passed alone.

        ``fates``: what becomes of single numbers; those of one fate and of one value are equal for good.
        """
        groups: dict[Any, list[int]] = {}
        pack = pack and all(array.nbytes <= _LARGE for array in arrays)
        equal = _equal(arrays, fates)
        followers = {i: first for first, *others in equal for i in others}
        leaders = [(i, a) for i, a in enumerate(arrays) if i not in followers]
        small = {i: a for i, a in (leaders if pack else ()) if a.ndim == 1 and a.nbytes <= _SMALL}
        alike = Counter((array.dtype, array.size) for array in small.values())
        for i in in_order(small, lambda i: small[i].size):
            array = small[i]
            if array.size == 1 or alike[array.dtype, array.size] <= _ALIKE:
                groups.setdefault(array.dtype, []).append(i)
        packs = tuple(tuple(g) for g in groups.values() if 1 < len(g) <= _MOST)
        packed = {i for group in packs for i in group}
        singles = tuple(i for i, _ in leaders if i not in packed)
        parts = {i: Part(at) for at, i in enumerate(singles)}
        for buffer, group in enumerate(packs, len(singles)):
            stops = np.cumsum([arrays[i].size for i in group]).tolist()
            starts = [0, *stops]
            parts |= {i: Part(buffer, a, b) for i, a, b in zip(group, starts, stops, strict=False)}
        parts |= {first: Part(parts[first].buffer, 0, 1) for first, *_ in equal if parts[first].start is None}
        parts |= {i: parts[first] for i, first in followers.items()}
        ordered = tuple(parts[i] for i in range(len(arrays)))
        return Buffers(ordered, tuple(a.shape for a in arrays), singles, packs, equal)

    def names(self, names: Sequence[str]) -> tuple[str, ...]:
        """For each buffer the name of its array, from the names of all arrays; '' where several share it."""
        return (*(names[i] for i in self.singles), *("" for _ in self.packs))

    def join(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
        """The buffers, outside jit."""
        packed = (np.concatenate([np.asarray(arrays[i]) for i in group]) for group in self.packs)
        return (*(arrays[i] for i in self.singles), *packed)

    def split(self, buffers: Sequence[Any]) -> list[Any]:
        """The arrays again, inside jit; those that are one are one value."""
        found = {p: self._read(buffers[p.buffer], p) for p in dict.fromkeys(self.parts)}
        return [found[p] for p in self.parts]

    def _read(self, buffer: Any, part: Part) -> Any:
        alone = part.start is None or part.buffer < len(self.singles)
        return buffer if alone else jax.lax.slice_in_dim(buffer, part.start, part.stop)

    def join_traced(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
        """The buffers, inside jit.

        Raises:
            Unpackable: something packed is no longer the vector it was, or another value is not an array.
        """
        if (self.packs or self.equal) and not all(isinstance(a, (jax.Array, np.ndarray)) for a in arrays):
            raise Unpackable
        for group in (*self.packs, *self.equal):
            if any(arrays[i].shape != self.shapes[i] for i in group) or len({arrays[i].dtype for i in group}) > 1:
                raise Unpackable
        # Writing slice by slice into the old buffer makes the step 2 % faster, and its compilation 10 % longer.
        packed = (joined([arrays[i] for i in group]) for group in self.packs)
        return (*(arrays[i] for i in self.singles), *packed)


def _equal(arrays: Sequence[Any], fates: Mapping[int, Hashable]) -> tuple[tuple[int, ...], ...]:
    """The positions of single numbers of one fate that are equal now."""
    groups: dict[Any, list[int]] = {}
    for i, fate in fates.items():
        if arrays[i].shape == (1,):
            groups.setdefault((fate, arrays[i].dtype, np.asarray(arrays[i]).tobytes()), []).append(i)
    return tuple(tuple(group) for group in groups.values() if len(group) > 1)


def in_order(vectors: Iterable[T], size: Callable[[T], int]) -> list[T]:
    """Vectors in the order in which ``joined`` takes them: those of a single number first."""
    return sorted(vectors, key=lambda vector: size(vector) != 1)


def joined(vectors: Sequence[jax.Array]) -> jax.Array:
    """Vectors one after the other, inside jit.

    XLA:CPU fuses nothing into a concatenation, and runs each small kernel as a task of its own, which takes 2 us. But
    it does fuse numbers, such as the powers of Adam, into the kernel that selects them by their position.
    """
    numbers = sum([vector.size == 1 for vector in vectors])
    together = [_selected(vectors[k : min(k + _TOGETHER, numbers)]) for k in range(0, numbers, _TOGETHER)]
    return jnp.concatenate([*together, *vectors[numbers:]])


def _selected(numbers: Sequence[jax.Array]) -> jax.Array:
    """Single numbers one after the other."""
    at, found = jax.lax.iota(np.int32, len(numbers)), jnp.broadcast_to(numbers[0], (len(numbers),))
    for k, number in enumerate(numbers[1:], 1):
        found = jax.lax.select(at == k, jnp.broadcast_to(number, found.shape), found)
    return found


NOTHING = Buffers.of(())
