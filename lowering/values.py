"""The values that variables may have while a block is lowered. All are pytrees, so they pass through jit and loops."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lowering import symbols
from lowering.errors import NeedsConcrete

Array = Any  # jax.Array or numpy.ndarray (a value known during tracing)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LoDArray:
    """Rows of ragged sequences: ``data[capacity, ...]`` and the offsets of each LoD level.

    Attributes:
        data: rows; those from ``nrows`` on are padding. In a forward value they are copies of a valid row
            (I1), in a gradient exactly zero (I2).
        lod: one int32 array per level, outermost first; each has a static length, and entries past the true
            number of sequences repeat the last offset. Empty: rows of a padded batch without a LoD.
        nrows: number of valid rows, a traced int32 scalar; None when all rows are valid (exact).
        nseq: number of valid top-level sequences, a traced int32 scalar; None when all are.
        longest: static upper bounds of the longest sequence, one per level; () if not requested.
        tight: whether ``longest`` are exact lengths of the longest sequences, not bounds.
    """

    data: Array
    lod: tuple[Array, ...] = ()
    nrows: Array | None = None
    nseq: Array | None = None
    longest: tuple[int, ...] = field(metadata={"static": True}, default=())
    tight: bool = field(metadata={"static": True}, default=False)

    @property
    def capacity(self) -> int:
        """The number of rows that fit into ``data``, including padding; static."""
        return self.data.shape[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of ``data``, including padding rows."""
        return self.data.shape

    @property
    def dtype(self) -> np.dtype:
        """The dtype of ``data``."""
        return self.data.dtype

    @property
    def padded(self) -> bool:
        """Whether some rows may be padding: the number of valid ones is then known only to the run."""
        return self.nrows is not None

    def rows(self) -> Array:
        """The number of valid rows: a traced scalar, or the capacity if exact; an export may leave that open."""
        if self.nrows is not None:
            return self.nrows
        return jnp.asarray(self.capacity, np.int32) if symbols.is_symbol(self.capacity) else np.int32(self.capacity)

    def level(self, i: int) -> Array:
        """The offsets of level ``i`` (negative counts from the finest)."""
        return self.lod[i]

    def with_data(self, data: Array) -> LoDArray:
        """The same LoD and row count for other rows, of the same number."""
        return replace(self, data=data)


class Axis(NamedTuple):
    """An axis along which a ``Wide`` value has spare room.

    Attributes:
        dim: the dim that consists of, or contains, ``room`` positions that are ``inner`` elements apart.
        room: the number of positions.
        label: determines how many are used: axes with the same label use the same number.
        inner: the elements per position, more than 1 if dims were merged by a reshape.
    """

    dim: int
    room: int
    label: Hashable
    inner: int = 1


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Wide:
    """A dense array with spare room along some axes (see ``lowering.wide``).

    Attributes:
        data: the contents of unused positions are finite where all else is, and meaningless.
        counts: the number of used positions of each axis, traced int32 scalars.
        axes: static.
    """

    data: Array
    counts: tuple[Array, ...]
    axes: tuple[Axis, ...] = field(metadata={"static": True})

    @property
    def padded(self) -> bool:
        """Whether some positions may be unused: how many are used is known only to the run."""
        return True

    def with_data(self, data: Array) -> Wide:
        """The same axes and counts for other numbers."""
        return replace(self, data=data)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of ``data``."""
        return self.data.shape

    @property
    def dtype(self) -> np.dtype:
        """The dtype of ``data``."""
        return self.data.dtype


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SelectedRows:
    """A sparse matrix [height, ...]: ``values[k, ...]`` belongs to row ``rows[k]``; duplicates add.

    Padding entries (of a bucketed batch) carry a valid row number and zero values; ``nrows`` is then the traced
    number of true entries, else None.
    """

    rows: Array
    values: Array
    height: int = field(metadata={"static": True}, default=0)
    nrows: Array | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the whole matrix, [height, ...]."""
        return (self.height, *self.values.shape[1:])

    @property
    def dtype(self) -> np.dtype:
        """The dtype of ``values``."""
        return self.values.dtype

    def to_dense(self) -> Array:
        """The matrix [height, ...] with duplicated rows summed."""
        zeros = jnp.zeros(self.shape, self.values.dtype)
        return zeros.at[self.rows].add(self.values, mode="drop")


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TensorArray:
    """A LOD_TENSOR_ARRAY.

    Either ``items`` holds the elements one by one (indices known during tracing, any shapes), or ``buffer`` is one
    value whose leaves are stacked on a leading [capacity] axis, of which the first ``length`` are written.
    ``taken``, in a gradient, flags elements that the gradient of their write has used: the next one starts from zero.
    """

    items: tuple[Any, ...] | None = ()
    buffer: Any = None
    length: Array | None = None
    taken: Array | None = None

    @property
    def stacked(self) -> bool:
        """Whether the elements are in ``buffer``, on a leading axis, instead of one by one in ``items``."""
        return self.buffer is not None

    @property
    def capacity(self) -> int:
        """The number of elements that fit; for ``items``, their number."""
        if self.stacked:
            return jax.tree_util.tree_leaves(self.buffer)[0].shape[0]
        return len(self.items or ())


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RankTable:
    """Sequences of one LoD level sorted by decreasing length (stable): ``index`` and ``lengths``, int32 [nseq].

    ``offsets`` are the level's offsets; ``capacity`` is the static row capacity of the ranked value, which
    ``array_to_lod_tensor`` cannot derive when elements carry LoD; ``longest`` the static bound of the longest length.
    """

    index: Array
    lengths: Array
    offsets: Array
    lod: tuple[Array, ...] = ()
    nseq: Array | None = None
    capacity: int = field(metadata={"static": True}, default=0)
    longest: int = field(metadata={"static": True}, default=0)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class StepScopes:
    """The residuals that a loop saves for its gradient: name -> stacked value, and the number of steps taken.

    ``capacity`` is the number of steps that fit; ``once`` names arrays of which the loop writes each element at
    most once, before any read; for a branch, ``ran`` tells whether it ran, if that was known during tracing.
    """

    saved: dict[str, Any] = field(default_factory=dict)
    steps: Array | None = None
    extra: Any = None
    capacity: int = field(metadata={"static": True}, default=0)
    once: tuple[str, ...] = field(metadata={"static": True}, default=())
    ran: bool | None = field(metadata={"static": True}, default=None)


class Counted(NamedTuple):
    """What a number known only to the run counts: rows of a padded value, or used positions of wide axes.

    Attributes:
        room: the number that fits.
        label: of the axes (see ``Axis``); None for rows.
    """

    room: int
    label: Hashable = None


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RowCounts:
    """Integers that follow rows or sizes of wide dims: the sum of ``rate * number``, and ``base`` (see ``counts``).

    Attributes:
        numbers: traced scalars.
        counted: what each of them counts.
        rates: for each of them the elements in row-major order, as ``base``.
        shape, dtype: of the integers.
    """

    numbers: tuple[Array, ...]
    counted: tuple[Counted, ...] = field(metadata={"static": True})
    rates: tuple[tuple[int, ...], ...] = field(metadata={"static": True})
    base: tuple[int, ...] = field(metadata={"static": True})
    shape: tuple[int, ...] = field(metadata={"static": True})
    dtype: np.dtype = field(metadata={"static": True})

    @property
    def data(self) -> Array:
        """The actual numbers, traced."""
        total: Array = np.asarray(self.base, self.dtype).reshape(self.shape)
        for number, rate in zip(self.numbers, self.rates, strict=True):
            each = jnp.asarray(np.asarray(rate, self.dtype).reshape(self.shape))
            total = each * jnp.asarray(number).astype(self.dtype) + total
        return total

    def __jax_array__(self) -> Array:
        return self.data

    @property
    def labels(self) -> frozenset[Hashable]:
        """The labels of the wide axes whose sizes these integers follow."""
        return frozenset(counted.label for counted in self.counted if counted.label is not None)

    def at(self, *numbers: int) -> np.ndarray:
        """The integers for given ``numbers``."""
        pairs = zip(self.rates, numbers, strict=True)
        total = sum((np.asarray(rate, np.int64) * n for rate, n in pairs), np.asarray(self.base, np.int64))
        return total.astype(self.dtype).reshape(self.shape)

    def known(self) -> np.ndarray:
        """The integers of a run that is over, on the host."""
        return self.at(*map(int, self.numbers))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Form:
    """Represents an array of which only the shape and the dtype are used, or known: it takes no memory on any device.

    A scope holds such a variable where other processes have its elements.
    """

    shape: tuple[int, ...] = field(metadata={"static": True})
    dtype: np.dtype = field(metadata={"static": True})

    @property
    def ndim(self) -> int:
        """The number of dims."""
        return len(self.shape)


@dataclass(frozen=True)
class Meta:
    """Shape, dtype and LoD of a value whose elements a gradient rule does not read."""

    shape: tuple[int, ...]
    dtype: np.dtype
    lod: tuple[Array, ...] = ()
    nrows: Array | None = None
    nseq: Array | None = None
    longest: tuple[int, ...] = ()
    tight: bool = False

    @property
    def capacity(self) -> int:
        """The static number of rows, padding included."""
        return self.shape[0]

    @property
    def padded(self) -> bool:
        """Whether rows may be padding."""
        return self.nrows is not None

    def like(self, data: Array) -> Any:
        """``data`` with the rows and the LoD of the value, if it has any."""
        if not self.lod and self.nrows is None:
            return data
        return LoDArray(data, self.lod, self.nrows, self.nseq, self.longest, self.tight)


def is_concrete(value: Any) -> bool:
    """Whether the value is known during tracing."""
    return isinstance(value, (np.ndarray, np.generic))


def is_padded(value: Any) -> bool:
    """Whether the value is a LoDArray with rows that may be padding."""
    return isinstance(value, LoDArray) and value.padded


def data_of(value: Any) -> Array:
    """The bare array of a LoDArray, or the array itself."""
    return value.data if isinstance(value, (LoDArray, RowCounts, Wide)) else value


def lod_of(value: Any) -> tuple[Array, ...]:
    """The offsets of each LoD level, outermost first; () for anything without a LoD."""
    return value.lod if isinstance(value, LoDArray) else ()


def row_mask(x: LoDArray, ndim: int | None = None) -> Array:
    """bool [capacity, 1, ...] (``ndim`` dims, default those of the data): True on valid rows."""
    ndim = x.data.ndim if ndim is None else ndim
    mask = jnp.arange(x.capacity, dtype=jnp.int32) < x.rows()
    return mask.reshape((-1,) + (1,) * (ndim - 1))


def fill_padding(data: Array, nrows: Array | None, *, backward: bool) -> Array:
    """Re-establish the padding invariant: copies of row 0 in a forward value (I1), zeros in a gradient (I2).

    Row 0 of an all-empty batch is itself padding and must be finite; it is kept unchanged.
    """
    if nrows is None or data.shape[0] == 0:
        return data
    mask = (jnp.arange(data.shape[0], dtype=jnp.int32) < nrows).reshape((-1,) + (1,) * (data.ndim - 1))
    fill = jnp.zeros((), data.dtype) if backward else data[:1]
    return jnp.where(mask, data, fill)


def taken(value: Wide) -> np.ndarray:
    """The used part of a wide value, on the host."""
    data = np.asarray(value.data)
    shape = list(data.shape)
    for axis, count in sorted(zip(value.axes, value.counts, strict=True), key=lambda pair: -pair[0].inner):
        before, size, apart = prod(shape[: axis.dim]), shape[axis.dim], axis.inner * prod(shape[axis.dim + 1 :])
        parts = data.reshape(before, size // (axis.room * axis.inner), axis.room, apart)[:, :, : int(count)]
        shape[axis.dim] = size // axis.room * int(count)
        data = parts.reshape(shape)
    return data


def exact(value: Any) -> Any:
    """A value of known row count without its padding: LoD offsets become host arrays. Not for use inside a trace."""
    if isinstance(value, Wide):
        return taken(value)
    if isinstance(value, TensorArray) and not value.stacked:
        return replace(value, items=tuple(exact(item) for item in value.items or ()))
    if isinstance(value, RowCounts):
        return value.known()
    if not isinstance(value, LoDArray) or (value.lod and not value.padded and all(map(is_concrete, value.lod))):
        return value
    data, levels = valid_rows(value)
    return LoDArray(data, tuple(levels), longest=value.longest) if levels else data


def valid_rows(value: LoDArray) -> tuple[Any, list[np.ndarray]]:
    """(valid rows, offsets of each level without padding sequences), on the host; rows under differentiation stay."""
    levels = [np.asarray(level, np.int32) for level in value.lod]
    if levels:
        count = len(levels[0]) - 1 if value.nseq is None else int(value.nseq)
        for i, level in enumerate(levels):
            levels[i] = level[: count + 1]
            count = int(levels[i][-1]) if len(levels[i]) else 0
    data = value.data if isinstance(value.data, jax.core.Tracer) else np.asarray(value.data)
    return data[: data.shape[0] if value.nrows is None else int(value.nrows)], levels


def concrete(value: Any, what: str) -> np.ndarray:
    """``value`` as a host array; NeedsConcrete if it depends on data known only to the running program."""
    if is_concrete(value) or isinstance(value, (int, float, bool, list, tuple)):
        return np.asarray(value)
    data = value.data if isinstance(value, LoDArray) else value
    if is_concrete(data):
        return np.asarray(data)
    if not isinstance(data, jax.core.Tracer):
        return np.asarray(data)
    if (sizes := symbols.known(data)) is not None:
        return sizes
    raise NeedsConcrete(what)
