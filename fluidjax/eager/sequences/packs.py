"""Small vectors that a block replaces travel in one buffer: each array costs a call more than a microsecond.

Biases, their moments and the like leave a step as pieces of a buffer, and enter the next one with it. If one is
inspected, or another block reads it, it is extracted.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from operator import attrgetter, itemgetter
from typing import Any

import jax
import numpy as np

from fluidjax.base.enums import VarType, to_numpy_dtype
from fluidjax.eager.sequences.order import Record, output_specs
from fluidjax.eager.values import Spec
from fluidjax.execution.steps.buffers import in_order

_SMALL = 4096  # bytes of the longest vector that is packed
_LARGE = 1 << 20  # bytes of an array that rules out packing, as in ``execution.steps.buffers``
_LEAST = 4  # vectors that justify a buffer


class Buffer:
    """What the pieces of one buffer share, so that all of them move to the next one at once.

    Attributes:
        array: the numbers.
        count: the number of its pieces.
    """

    __slots__ = ("array", "count")

    def __init__(self, array: Any, count: int) -> None:
        self.array, self.count = array, count


class Piece:
    """A vector in a buffer.

    Attributes:
        bounds: where it begins and ends.
    """

    __slots__ = ("_buffer", "bounds")

    def __init__(self, buffer: Buffer, bounds: tuple[int, int]) -> None:
        self._buffer, self.bounds = buffer, bounds

    @property
    def buffer(self) -> Any:
        """The array that it is a part of."""
        return self._buffer.array

    @property
    def shape(self) -> tuple[int]:
        """[length]."""
        start, stop = self.bounds
        return (stop - start,)

    @property
    def dtype(self) -> Any:
        """The element type."""
        return self.buffer.dtype

    def take(self) -> np.ndarray:
        """Its numbers, which outlive the buffer."""
        return np.array(np.asarray(self.buffer)[slice(*self.bounds)])


def taken(array: Any) -> Any:
    """An array in the form that kernels take."""
    return array.take() if array.__class__ is Piece else array


def replaced(records: Sequence[Record], alive: Sequence[int]) -> dict[int, int]:
    """leaf -> the output `alive` that is the same variable after the ops, according to their in-place updates."""
    origins: dict[int, int] = {}  # output -> leaf
    count = 0
    for kernel, *codes in records:
        codes = codes[kernel.takes_key :]
        for k, source in enumerate(kernel.aliases):
            if source >= 0:
                code = codes[source]
                leaf = ~code if code < 0 else origins.get(code, -1)
                if leaf >= 0:
                    origins[count + k] = leaf
        count += kernel.width
    return {origins[code]: code for code in alive if code in origins}


def donatable(
    records: list[Record], arrays: list[Any], leaves: tuple[Spec, ...], alive: tuple[int, ...]
) -> tuple[int, ...]:
    """The leaves without other references, as far as there are outputs to take their memory."""
    free = [
        k
        for k in range(len(leaves))
        if isinstance(arrays[k], (jax.Array, np.ndarray, Piece)) and sys.getrefcount(arrays[k]) <= 2
    ]
    return tuple(within_room(records, leaves, alive, free))


def within_room(
    records: Sequence[Record], leaves: Sequence[Spec], outputs: Sequence[int], wanted: Sequence[int]
) -> list[int]:
    """Those of the `wanted` leaves whose memory the `outputs` can take, each that of one."""
    specs = output_specs(records, leaves)
    room = Counter([specs[code] for code in outputs])
    found = []
    for k in wanted:
        if room[leaves[k]] > 0:
            room[leaves[k]] -= 1
            found.append(k)
    return found


class Pack:
    """Vectors that share a buffer.

    Attributes:
        leaves, outputs: which leaves enter with it, and which outputs leave with it.
        bounds: where each of them begins and ends.
    """

    def __init__(self, pairs: Sequence[tuple[int, int]], sizes: Sequence[int]) -> None:
        self.leaves = [leaf for leaf, _ in pairs]
        self.outputs = [code for _, code in pairs]
        ends = np.cumsum(sizes).tolist()
        self.bounds = list(zip([0, *ends], ends, strict=False))
        self.size = ends[-1]
        self._of = itemgetter(*self.leaves)

    def join(self, arrays: Sequence[Any]) -> tuple[Any, list[Piece]]:
        """The buffer of these leaves, which may be overwritten; `arrays` holds the only references to unneeded ones.

        Besides, the pieces that nothing else refers to, if all do so: they can serve again (see ``pieces``).
        """
        found = self._of(arrays)
        if not is_whole(found, self.bounds):
            return np.concatenate([np.asarray(taken(array)) for array in found]), []
        buffer = found[0].buffer
        free = max(map(sys.getrefcount, found)) <= 3  # the list, the tuple, the call
        return (buffer, [*found]) if free else (jax.numpy.array(buffer, copy=True), [])

    def split(self, buffer: Any) -> list[Any]:
        """Split a buffer into its vectors, inside jit."""
        return [jax.lax.slice_in_dim(buffer, start, stop) for start, stop in self.bounds]

    def pieces(self, buffer: Any, used: list[Piece]) -> list[Piece]:
        """The same outside jit; ``used``: pieces of these bounds that nothing needs any more, to be used again."""
        if not used:
            shared = Buffer(buffer, len(self.bounds))
            return [Piece(shared, bounds) for bounds in self.bounds]
        used[0]._buffer.array = buffer
        return used


def is_whole(found: Sequence[Any], bounds: Sequence[tuple[int, int]]) -> bool:
    """Whether these are all pieces of one buffer, in order."""
    if {*map(type, found)} != _PIECES or found[0]._buffer.count != len(found):
        return False
    return len({*map(_buffer_of, found)}) == 1 and [*map(_bounds_of, found)] == [*bounds]


_PIECES = {Piece}
_buffer_of, _bounds_of = attrgetter("_buffer"), attrgetter("bounds")


def packs_of(records: Sequence[Record], leaves: Sequence[Spec], alive: Sequence[int]) -> list[Pack]:
    """How the vectors that a block replaces are packed.

    Nothing but the ops and shapes decides it, so that steps for batches of several sizes take the variables in one form
    (see ``frames``), whoever refers to them when the blocks are compiled.
    """
    if any(_bytes(spec) > _LARGE for spec in leaves if spec.plain):
        return []
    pairs = replaced(records, alive)
    groups: dict[VarType, list[int]] = {}
    for leaf in sorted(pairs):
        spec = leaves[leaf]
        if len(spec.shape) == 1 and spec.kind == VarType.LOD_TENSOR and 0 < _bytes(spec) <= _SMALL:
            groups.setdefault(spec.dtype, []).append(leaf)
    return [
        Pack([(leaf, pairs[leaf]) for leaf in group], [leaves[leaf].shape[0] for leaf in group])
        for group in [in_order(group, lambda leaf: leaves[leaf].shape[0]) for group in groups.values()]
        if len(group) >= _LEAST
    ]


def _bytes(spec: Spec) -> int:
    return int(np.prod(spec.shape)) * np.dtype(to_numpy_dtype(spec.dtype)).itemsize
