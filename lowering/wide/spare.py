"""Which parts of a run may have spare room; what cannot take it is run again without."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from lowering.program import ProgramView
from lowering.wide.widen import pads_to_longest, widened


class SpareRoom(NamedTuple):
    """What a run may give more room than it needs.

    Attributes:
        widened: indices of the ``sequence_pad`` ops that may, with nobody told (see ``widen``).
        wide: whether any ``sequence_pad`` may, if it says so (see ``wide``).
        growing: whether loops may, in what they make longer, and leave it so (see ``loops.growing``).
    """

    widened: frozenset[int] = frozenset()
    wide: bool = False
    growing: bool = False


NO_ROOM = SpareRoom()


def spare_room(program: ProgramView, fetches: Collection[str], *, growing: bool) -> SpareRoom:
    """All the room that a program's ops may have, before one of them has refused it."""
    return SpareRoom(widened(program, fetches), any(map(pads_to_longest, program.blocks[0].ops)), growing)
