"""How a block takes and gives the variables that it replaces: as they leave one run of it, they enter the next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from fluidjax.eager.sequences.packs import Buffer, Piece
from fluidjax.eager.sequences.whole import Whole
from fluidjax.eager.values import Value
from fluidjax.eager.whole.fed import Fed, Last
from lowering.engine.x64 import with_x64


class Slot(NamedTuple):
    """An array that holds one variable, or several.

    Attributes:
        members: the numbers of the variables.
        bounds: where each of them begins and ends; None for a variable of its own.
    """

    members: tuple[int, ...]
    bounds: tuple[tuple[int, int], ...] | None

    def arrays(self, array: Any) -> list[Any]:
        """The array of each variable."""
        if self.bounds is None:
            return [array]
        shared = Buffer(array, len(self.bounds))
        return [Piece(shared, bounds) for bounds in self.bounds]


Layout = tuple[Slot, ...]  # the arrays that hold the variables; equal ones are one object
_layouts: dict[Layout, Layout] = {}


class Frame:
    """A block, and the variables that it replaces, whose arrays are the *state*.

    Attributes:
        layout: the arrays of the state.
        outer: the leaves that are its other arguments.
        arguments: gives the arguments of the executable, of these in their order and the state.
        places: output -> its place among the results.
        state: gives the state after a run, of its results.
        fed: memory for what comes from the host; None before the first run.
    """

    def __init__(self, block: Whole, slots: Sequence[tuple[Slot, int, int]], places: dict[int, int]) -> None:
        layout = tuple([slot for slot, _, _ in slots])
        self.block, self.layout, self.places = block, _layouts.setdefault(layout, layout), places
        self.state = _getter([result for _, _, result in slots])
        own = [argument for _, argument, _ in slots]
        free = [n for n in range(len(block.singles)) if n not in {*own}]
        self.outer = [block.singles[n] for n in free]
        self._free = free
        pool = {n: k for k, n in enumerate([*free, *own])}
        self.arguments = _getter([pool[n] for n in range(len(pool))])
        self.fed: Fed | None = None

    def noted(self, leaves: Sequence[Value], outer: list[Any]) -> Last | None:
        """What the next run is to know of this one, whose arguments were ``put``; None for nothing."""
        fed = self.fed
        return None if fed is None or np.ndarray in {*map(type, outer)} else fed.noted(self.outer, leaves, outer)

    @property
    def direct(self) -> Any:
        """For one more run: the executable, to be called with arrays of the device; None if ``call`` has to run it."""
        return None if self.fed is None else self.block.direct

    def put(self, outer: list[Any]) -> bool:
        """Put what comes from the host where it stays; returns whether all is on the device."""
        if self.fed is None:
            return False
        self.fed.put(outer)
        return np.ndarray not in {*map(type, outer)}

    def call(self, arguments: tuple[Any, ...]) -> Sequence[Any]:
        """The results. Later arguments from the host have memory that stays."""
        found = with_x64(self.block.call, arguments)
        if self.fed is None:
            self.fed = with_x64(Fed, [arguments[n] for n in self._free])
        Fed.wait(found)
        return found


def _getter(numbers: Sequence[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """A function that gives the elements with these numbers."""
    if len(numbers) > 1:
        return itemgetter(*numbers)
    return lambda values: tuple([values[n] for n in numbers])


def frame_of(block: Whole, own: Sequence[tuple[int, int]]) -> Frame | None:
    """The frame of a block which replaces variables; None if it takes or gives one of them in a way of its own.

    Args:
        own: for each variable the leaf that it enters as, and the output that it leaves as.
    """
    numbers = {leaf: n for n, (leaf, _) in enumerate(own)}
    places = {block.alive[k]: n for n, k in enumerate(block.given)}
    slots: list[tuple[Slot, int, int]] = []  # with the places among the arguments and the results
    for n, leaf in enumerate(block.singles):
        if leaf in numbers:
            slots.append((Slot((numbers[leaf],), None), n, places.get(own[numbers[leaf]][1], -1)))
        elif n in block.donated:
            return None
    for j, pack in enumerate(block.packs):
        members = tuple([numbers.get(leaf, -1) for leaf in pack.leaves])
        if -1 in members or [own[m][1] for m in members] != pack.outputs:
            return None
        slots.append((Slot(members, tuple(pack.bounds)), len(block.singles) + j, len(block.given) + j))
    whole = sorted([m for slot, _, _ in slots for m in slot.members]) == [*range(len(own))]
    return Frame(block, slots, places) if whole and all(result >= 0 for _, _, result in slots) else None
