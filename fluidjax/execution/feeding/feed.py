"""Feeds: what the user passes under variables' names, checked and turned into the lowering's values."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np

from fluidjax.base.containers import LoDTensorArray, SelectedRows
from fluidjax.base.lod import lod_fault
from fluidjax.base.values import LoDTensor
from fluidjax.execution.feeding.batches import Batch
from fluidjax.execution.feeding.batches import exact as exactly
from fluidjax.execution.feeding.feed_checks import checked, from_python
from fluidjax.execution.feeding.ragged import Ragged
from fluidjax.execution.rooms.dense import ChangingDims, Dense
from fluidjax.execution.rooms.even import EvenFeeds
from fluidjax.execution.rooms.families import Sizes
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


class Feeder:
    """Turns a run's feed dict into values, with room for more where ``tiers`` says so.

    ``owners`` names the variables that several devices have shares of, for each share but the first; ``closer`` says
    whether too large a first room is followed by closer ones, so that it may be ample.

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
        closer: bool = False,
        even: bool = False,
        owners: Mapping[str, str] = MappingProxyType({}),
    ):
        self._variables, self._owners = variables, owners
        self._ranks = ranks
        self._tiers = tiers or Tiers(beside=False)
        self._floor, self._operations = floor, operations
        self._padding, self._ahead, self._closer = padding, ahead, closer
        self._dims = ChangingDims(ahead=ahead)
        self._even = EvenFeeds(wanted=even)
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

    def values(self, names: Sequence[str], feed: Mapping[str, Any], *, exact: bool, dims: bool = False) -> list[Any]:
        """The values of the feeds ``names``; None (with a warning) for one without a variable in the program.

        Args:
            exact: whether rows have no room; ``dims``: whether dims have, then, if nothing that is fed has rows.
        """
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
        if exact and (not dims or Ragged in kinds or self._dims.have_rows):
            return [exactly(v) for v in values]
        values, sizes = self._labelled(names, values) if Dense in kinds else (values, {})
        if not sizes and Ragged not in kinds:
            return values
        batch = self._run.batch = Batch([self._owners.get(n, n) for n in names], values, sizes)
        self._run.visit = self._visit(batch)
        return batch.in_room(self._run.visit.room)

    def values_in(self, room: Sizes) -> list[Any]:
        """The values that this thread was given last, in another room that they fit into."""
        found: list[Any] = self._run.batch.in_room(room)
        return found

    def refuse_dims(self) -> bool:
        """Give all dims their true size for good; returns whether any had room."""
        return self._dims.refuse_all()

    def refuse(self, labels: Collection[Any]) -> bool:
        """Give the dims of dense feeds with these labels their true size; returns whether that is permanent."""
        return self._dims.refuse(labels)

    def accept_even(self) -> bool:
        """Give no room for more to feeds whose sequences are of one length; returns whether any had some."""
        return self._even.accept()

    def refuse_even(self) -> bool:
        """Give room for more to feeds whose sequences are of one length, too; returns whether any had none."""
        return self._even.refuse()

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
        """The values with this batch's labels, and the size of each label, as they are met; no labels where a value
        is empty.
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
        labels = (label for v in found if type(v) is Dense for label in v.labels.values())
        return found, {label: sizes[label] for label in dict.fromkeys(labels)}

    def _visit(self, batch: Batch) -> Visit:
        return self._tiers.visit(batch.alike, batch.sizes, batch.units, lambda: self._floors(batch))

    def _floors(self, batch: Batch) -> Sizes:
        rows = batch.floors(self._floor, ahead=self._ahead)
        return (*rows, *(self._dims.floor(n, *self._needs(batch, n)) for n in batch.labels))

    def _needs(self, batch: Batch, label: int) -> tuple[int, int]:
        """The operations of each place of a dim, and the places that an image needs in any case."""
        side = batch.side(label)
        return self._operations * batch.positions(label), side + (side // 4 if self._closer else 0)

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
            if self._even.has(var.name, fed._lod, data.shape[0]):
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
