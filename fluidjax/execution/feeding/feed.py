"""Feeds: what the user passes under variables' names, checked and turned into the lowering's values."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from math import prod
from typing import Any, NamedTuple

import jax
import numpy as np

from fluidjax.base.containers import LoDTensorArray, SelectedRows
from fluidjax.base.lod import lengths_to_offsets, lod_fault
from fluidjax.base.values import LoDTensor
from fluidjax.execution.feeding.feed_checks import checked, from_python
from fluidjax.execution.rooms.buckets import bucket, sum_of_others
from fluidjax.execution.rooms.dense import ChangingDims, Dense
from fluidjax.execution.rooms.families import Sizes
from fluidjax.execution.rooms.ones import OneRowFeeds
from fluidjax.execution.rooms.tiers import Tiers, Visit
from fluidjax.execution.scopes.exchange import lod_array, to_holder, to_lowering, usual_room
from fluidjax.framework.callstack import depth_of_user
from lowering.program import VarView


class Handed(NamedTuple):
    """A value of the lowering that another step left, with padded rows."""

    value: Any

    def exact(self) -> Any:
        """The value without its padding."""
        tensor = to_holder(self.value)
        if not isinstance(tensor, LoDTensor):
            return to_lowering(tensor)
        rows = tensor.lod()[-1][-1] if tensor.lod() else 0
        if rows and not tensor.shape()[0]:  # the shape of no rows: 0, and then the shape of what had them
            return np.empty((0, rows, *tensor.shape()[2:]), np.asarray(tensor).dtype)
        return to_lowering(tensor)


class Ragged(NamedTuple):
    """Rows of sequences that get room for more: ``data`` and the offsets of each level.

    ``ranked`` says that bounds on the longest sequences are wanted as well.
    """

    data: Any
    lod: Sequence[Sequence[int]]
    ranked: bool

    @property
    def alike(self) -> Any:
        """What an executable depends on, whatever room it has."""
        return self.data.shape[1:], self.data.dtype, len(self.lod[0]), len(self.lod)

    def sizes(self) -> Sizes:
        """The numbers of rows and of each level's inner sequences; if ranked, also each level's longest sequence."""
        inner = [len(level) - 1 for level in self.lod[1:]]
        return (self.data.shape[0], *inner, *(self._longest() if self.ranked else ()))

    @property
    def kinds(self) -> int:
        """How many sizes it has."""
        return len(self.lod) * (1 + self.ranked)

    def units(self) -> Sizes:
        """The bytes that one unit of each size takes."""
        row = self.data.dtype.itemsize * prod(self.data.shape[1:])
        return (row, *(4,) * (len(self.lod) - 1), *(len(self.lod) * self.ranked * (0,)))

    def floors(self, rows: int, *, ahead: bool = False) -> Sizes:
        """The least room for each size; ``ahead``: enough for other sequences of which these are a sample.

        One-row sequences are a batch like a dense one, whose size seldom changes.
        """
        changing = self.data.shape[0] != len(self.lod[-1]) - 1
        *inner, all_rows = (sum_of_others(np.diff(level)) if ahead else 0 for level in self.lod)
        return (max(rows if changing else 0, all_rows), *inner, *(0,) * (len(self.lod) * self.ranked))

    def value(self, room: Sizes | None) -> Any:
        """The value with this much room; None: with none to spare."""
        if room is None:
            longest = tuple(bucket(n) for n in self._longest()) if self.ranked else ()
            return lod_array(self.data, self.lod, room=None, longest=longest)
        levels = len(self.lod)
        return lod_array(self.data, self.lod, room=room[:levels], longest=room[levels:])

    def _longest(self) -> Sizes:
        return tuple(int(np.diff(level).max(initial=1)) for level in self.lod)


class Feeder:
    """Turns a run's feed dict into values, with room for more where ``tiers`` says so.

    Attributes:
        tight: whether ops need the exact length of the longest sequence, not a bound; a program is then compiled for
            that length. In that case the row capacity only grows: otherwise each length would be compiled for each
            bucket.
        padded: whether anything that may have room for more was ever fed.
    """

    def __init__(
        self,
        variables: Mapping[str, VarView],
        ranks: bool,
        tiers: Tiers | None = None,
        floor: int = 0,
        operations: int = 0,
        *,
        padding: bool = True,
        ahead: bool = False,
        ones: bool = False,
    ):
        self._variables = variables
        self._ranks = ranks
        self._tiers = tiers or Tiers(beside=False)
        self._floor, self._operations = floor, operations
        self._padding, self._ahead = padding, ahead
        self._dims = ChangingDims(ahead=ahead)
        self._ones = OneRowFeeds(wanted=ones)
        self._run = threading.local()
        self.tight = self.padded = False
        self._lock = threading.Lock()
        self._room: dict[str, int] = {}
        self._last: dict[str, tuple[int, ...]] = {}
        self._accepted: dict[str, tuple[np.dtype, tuple[int, ...]]] = {}  # what needs no look, as no dim of it changes

    @property
    def visit(self) -> Visit | None:
        """The room that this thread's last feeds were given; None where they needed none."""
        return getattr(self._run, "visit", None) if self.padded else None

    def values(self, names: Sequence[str], feed: Mapping[str, Any], *, exact: bool) -> list[Any]:
        """The values of the feeds ``names``; None (with a warning) for one without a variable in the program."""
        if self.padded:
            self._dims.begin()
            self._run.visit = None
        moved: dict[str, int] = {}
        self._run.moved = moved
        values = [self._value(name, feed[name], exact) for name in names]
        if moved:
            values = self._with_rows(names, values, moved)
        kinds = set(map(type, values))
        if not self.padded or kinds.isdisjoint((Ragged, Dense)):
            return values
        if exact:
            return [_exact(v) for v in values]
        values, sizes = self._labelled(names, values) if Dense in kinds else (values, {})
        if not sizes and Ragged not in kinds:
            return values
        self._run.values, self._run.visit = values, self._visit(values, sizes)
        return _in_room(values, self._run.visit.room)

    def values_in(self, room: Sizes) -> list[Any]:
        """The values that this thread was given last, in another room that they fit into."""
        return _in_room(self._run.values, room)

    def refuse(self, labels: Collection[Any]) -> bool:
        """Give the dims of dense feeds with these labels their true size; returns whether that is permanent."""
        return self._dims.refuse(labels)

    def refuse_ones(self) -> bool:
        """Give room for more to feeds with one row in every sequence; returns whether any had none."""
        return self._ones.refuse()

    def refuse_rows(self) -> bool:
        """Give dense feeds' first dims their true size for good; returns whether any had room."""
        return self._dims.refuse_rows()

    def count_rows(self, names: Collection[str], feed: Mapping[str, Any]) -> bool:
        """Take these fed numbers, which say sizes, for counts of rows from now on; returns whether any may be one."""
        given = {name: value for name, value in feed.items() if type(value) is np.ndarray}
        numbers = {n: given[n].item() for n in names if n in given and _is_number(given[n])}
        rows = self._rows_of(given)
        if not self._padding or len(set(rows.values())) < 2 or not self._dims.count(numbers, rows):
            return False
        self._accepted.clear()
        self.padded = True
        return True

    def _with_rows(self, names: Sequence[str], values: list[Any], before: Mapping[str, int]) -> list[Any]:
        """The values, of which some first dims were of another size ``before``."""
        dense = {n: v.data if type(v) is Dense else v for n, v in zip(names, values, strict=True)}
        self._dims.see_rows(before, self._rows_of({n: v for n, v in dense.items() if type(v) is np.ndarray}))
        return [self._with_labels(n, v) if type(v) is np.ndarray else v for n, v in zip(names, values, strict=True)]

    def _rows_of(self, given: Mapping[str, np.ndarray]) -> dict[str, int]:
        """The first dims of feeds for which they are declared to be of any size."""
        declared = {name: self._variables[name].shape for name in given if name in self._variables}
        return {name: given[name].shape[0] for name, shape in declared.items() if shape and shape[0] < 0}

    def _labelled(self, names: Sequence[str], values: list[Any]) -> tuple[list[Any], dict[int, int]]:
        """The values with this batch's labels, and the size of each label, in the order of ``_labels_of``; no labels
        where a value is empty.
        """
        dense = {n: v.data for n, v in zip(names, values, strict=True) if type(v) is Dense}
        if not dense:
            return values, {}
        with self._lock:
            numbers = {name: data.item() for name, data in dense.items() if data.size == 1}
            sizes = self._dims.sizes({name: data.shape for name, data in dense.items()}, numbers)
            labelled = {name: self._dims.labelled(name, data) for name, data in dense.items()}
        if min(sizes.values(), default=1) < 1:
            return [v.data if type(v) is Dense else v for v in values], {}
        found = [labelled.get(n, v) for n, v in zip(names, values, strict=True)]
        return found, {label: sizes[label] for label in _labels_of(found)}

    def _visit(self, values: list[Any], labels: Mapping[int, int]) -> Visit:
        ragged = [v for v in values if type(v) is Ragged]
        key = tuple(v.alike if type(v) in (Ragged, Dense) else (getattr(v, "shape", ()), type(v)) for v in values)
        sizes, units = (tuple(n for v in ragged for n in of(v)) for of in (Ragged.sizes, Ragged.units))
        bytes_of = dict.fromkeys(labels, 0)
        for value in values:
            for dim, label in value.labels.items() if type(value) is Dense else ():
                bytes_of[label] += value.unit(dim)
        sizes, units = (*sizes, *labels.values()), (*units, *bytes_of.values())
        return self._tiers.visit((key, tuple(labels)), sizes, units, lambda: self._floors(values, labels))

    def _floors(self, values: list[Any], labels: Mapping[int, int]) -> Sizes:
        ragged = (v.floors(self._floor, ahead=self._ahead) for v in values if type(v) is Ragged)
        dense = [v for v in values if type(v) is Dense]
        places = {label: max(v.positions(label) for v in dense if label in v.labels.values()) for label in labels}
        return (
            *chain.from_iterable(ragged),
            *(self._dims.floor(label, self._operations * places[label]) for label in labels),
        )

    def _value(self, name: str, fed: Any, exact: bool) -> Any:
        if type(fed) is np.ndarray and self._accepted.get(name) == (fed.dtype, fed.shape):
            return fed
        var = self._variables.get(name)
        if var is None:
            warnings.warn(
                f"feed {name!r}: the program has no variable of that name, so the value is ignored",
                stacklevel=depth_of_user(),
            )
            return None
        if isinstance(fed, np.ma.MaskedArray):
            raise TypeError(
                f"feed {name!r}: expected an array, received one with a mask, which no op respects; feed"
                " array.filled(value), and the mask as a variable of its own"
            )
        if isinstance(fed, np.ndarray):
            return self._dense(var, fed)
        if isinstance(fed, Handed):
            return fed.exact() if exact else fed.value
        if isinstance(fed, LoDTensor):
            return self._tensor(var, fed, exact)
        if isinstance(fed, (SelectedRows, LoDTensorArray)):
            return to_lowering(fed)
        if isinstance(fed, jax.Array):
            return checked(var, fed)
        return self._dense(var, from_python(var, fed))

    def _dense(self, var: VarView, fed: Any) -> Any:
        """A fed array without LoD, checked; ``Dense`` where dims of it are known to change."""
        data = checked(var, fed)
        if type(data) is not np.ndarray or not self._padding:
            return data
        before = self._last.get(var.name)
        if before is None:
            self._dims.expect(var.name, var.shape, data.shape)
        else:
            self._dims.see(var.name, before, data.shape)
            if before and before[0] != data.shape[0]:
                self._run.moved[var.name] = before[0]
        self._last[var.name] = data.shape
        return self._with_labels(var.name, data)

    def _with_labels(self, name: str, data: np.ndarray) -> Any:
        """An array, as ``Dense`` where dims of it are known to change."""
        dense = self._dims.labelled(name, data)
        if not dense.labels:
            self._accepted[name] = data.dtype, data.shape
            return data
        self._accepted.pop(name, None)
        self.padded = True
        return dense

    def _tensor(self, var: VarView, fed: LoDTensor, exact: bool) -> Any:
        data = fed._value
        if data is None:
            raise ValueError(
                f"feed {var.name!r}: the LoDTensor holds no data; expected rows set with tensor.set(array, place),"
                " received an empty tensor"
            )
        if not fed._lod:
            return self._dense(var, data)
        fault = lod_fault(fed._lod, fed.shape()[0])
        if fault:
            raise ValueError(
                f"feed {var.name!r}: its LoD does not fit its {data.shape[0]} rows: {fault}; set lengths that add up"
                " to the number of rows"
            )
        data = checked(var, data, ragged=True)
        if not self.tight:
            ragged = Ragged(data, fed._lod, self._ranks)
            if self._ones.has(var.name, fed._lod, data.shape[0]):
                return ragged.value(None)
            self.padded = True
            return ragged
        rows, *inner = usual_room(data.shape[0], fed._lod)
        rows = self._room[var.name] = max(rows, self._room.get(var.name, 0))
        longest = tuple(int(np.diff(level).max(initial=0)) for level in fed._lod)
        room = None if exact else (rows, *inner)
        return lod_array(data, fed._lod, room=room, longest=longest, tight=True)


def _is_number(value: np.ndarray) -> bool:
    return value.shape == (1,) and value.dtype.kind == "i"


def _exact(value: Any) -> Any:
    if type(value) is Ragged:
        return value.value(None)
    return value.data if type(value) is Dense else value


def _labels_of(values: Iterable[Any]) -> list[int]:
    """The labels of dense feeds, in the order in which they are met."""
    return list(dict.fromkeys(label for v in values if type(v) is Dense for label in v.labels.values()))


def _in_room(values: list[Any], room: Sizes) -> list[Any]:
    """``room`` lists that of each ragged value, then that of each label, in order."""
    at, found = 0, []
    for value in values:
        if type(value) is Ragged:
            begin, at = at, at + value.kinds
            value = value.value(room[begin:at])
        found.append(value)
    if at == len(room):
        return found
    wide = dict(zip(_labels_of(values), room[at:], strict=True))
    return [v.value(wide) if type(v) is Dense else v for v in found]


def joined(parts: Sequence[Any]) -> Any:
    """Feeds of several devices as one: their rows concatenated, and their sequences too."""
    if not any(isinstance(part, LoDTensor) for part in parts):
        return np.concatenate([np.asarray(part) for part in parts])
    lengths = [part.recursive_sequence_lengths() for part in parts]
    lod = lengths_to_offsets([sum(level, []) for level in zip(*lengths, strict=True)]) if all(lengths) else None
    merged = LoDTensor()  # the LoD may not be of the rows: `accuracy` is one number with the LoD of what it judged
    merged._set_value(np.concatenate([np.array(part) for part in parts]), lod)
    return merged
