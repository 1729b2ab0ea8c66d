"""What a rule sees of one op on values with spare room, and whom it tells what their sizes have to be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from lowering.errors import Need, NeedsSizes
from lowering.program import OpView
from lowering.registry import OpDef
from lowering.sizes.counts import SlotValues, flat
from lowering.sizes.labels import Sized, roots
from lowering.values import Array, Axis, Wide, data_of
from lowering.wide.joined import Joined, Packed

_BLOCKS = ("while", "conditional_block", "select_")
_RECURRENCES = frozenset("recurrent recurrent_grad rnn_memory_helper rnn_memory_helper_grad".split())

Axes = tuple[Axis, ...]
Packs = dict[tuple[str, int], Packed]  # (slot, which of its values) -> how it is packed
Noted = tuple[tuple[int, int], Packs]  # (the block and number of an op, what of its inputs was packed)


@dataclass
class Call:
    """What a rule sees of one op, and what it requests.

    Attributes:
        op, definition: the forward op; for a gradient op, the op it differentiates.
        fills: (slot, axis) -> the content of unused positions while the op runs.
        refilled: whether unused positions of the results become copies of the first one.
        share: axes over which the op takes a mean.
        joined: how the places of several parts are put together along a dim.
        moved: slot -> a change of its array before the op runs, given the numbers of used positions by label.
        least: labels of the results' axes that may have lost all positions.
        alike: pairs of labels, with their numbers of used positions, that are taken to be equal.
        ended: slot -> an axis of its value, of which the op gets the used positions where the room ends.
        shifted: (slot, axis) -> by how many places its value is moved on, given the numbers of used positions by label;
            as many are unused at least.
        kept: slots whose value the op gets with its axes: it counts used positions itself.
    """

    op: OpView
    definition: OpDef
    values: SlotValues
    fills: dict[tuple[str, Axis], Any] = field(default_factory=dict)
    refilled: bool = False
    share: tuple[Axis, ...] = ()
    joined: Joined | None = None
    moved: dict[str, Callable[[Array, Mapping[Any, Array]], Array]] = field(default_factory=dict)
    least: list[Any] = field(default_factory=list)
    alike: list[tuple[Sized, Sized]] = field(default_factory=list)
    ended: dict[str, Axis] = field(default_factory=dict)
    shifted: dict[tuple[str, Axis], Callable[[Mapping[Any, Array]], Array]] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)

    def attr(self, name: str) -> Any:
        """An attribute, or its default."""
        return self.op.attrs.get(name, self.definition.attrs[name].default)

    def each(self, slot: str) -> list[Any]:
        """The values of a slot."""
        return [v for v in self.listed(slot) if v is not None]

    def listed(self, slot: str) -> list[Any]:
        """The values of a slot, None among them where there is none."""
        value = self.values.get(slot)
        return value if isinstance(value, list) else [value]

    def axes(self, slot: str) -> Axes:
        """The wide axes of the one value of a slot."""
        found = self.each(slot)
        return found[0].axes if found and isinstance(found[0], Wide) else ()

    def shape(self, slot: str) -> tuple[int, ...]:
        """The shape of the one value of a slot."""
        return tuple(data_of(self.each(slot)[0]).shape)

    def only(self, *slots: str) -> bool:
        """Whether no other slot has a wide value."""
        return not any(isinstance(v, Wide) for s in self.values if s not in slots for v in self.each(s))


class Told(Protocol):
    """Hears of what an op needs sizes to be, and has it checked; raises NeedsSizes where nobody can."""

    def some(self, label: Any, count: Array) -> None:
        """Axes with this label, of which so many positions are used, have at least one."""

    def same(self, one: Sized, other: Sized) -> None:
        """Axes with these labels use equally many positions."""

    @property
    def packs(self) -> dict[str, Noted]:
        """Name of a result -> where its op is, and what of its inputs was packed."""


class Refusing(NamedTuple):
    """Refuses all that would have to be checked."""

    op: OpView
    values: SlotValues
    packs: dict[str, Noted]

    def some(self, label: Any, count: Array) -> None:
        """Refused."""
        raise refused(self.op, flat(self.values), "may leave nothing of a dim")

    def same(self, one: Sized, other: Sized) -> None:
        """Refused."""
        raise refused(self.op, flat(self.values), "pairs dims whose sizes may differ")


def is_wide(value: Any) -> bool:
    """Whether a value has spare room along some axis."""
    return isinstance(value, Wide)


def refused(op: OpView, values: Iterable[Any], why: str) -> Need:
    """The error for an op that cannot take these values wide."""
    needed = NeedsSizes(f"op {op.type} {why}")
    needed.labels = roots(axis.label for v in values if isinstance(v, Wide) for axis in v.axes)
    return needed.asked_by(op)


def takes_room(op: OpView, *, interpret: bool) -> bool:
    """Whether an op that runs others can give them values with room."""
    return op.type.startswith(_BLOCKS) or (op.type in _RECURRENCES and not interpret)
