"""A run on several devices that asks for the same as the one before, of a batch like that one's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from fluidjax.base.places import Place
from fluidjax.base.scope import Scope
from fluidjax.execution.devices.shares import Feed
from fluidjax.execution.devices.written import Alone, Evenly, Unevenly, Written
from fluidjax.execution.runs.asked import preparing_flags, same_items
from fluidjax.execution.runs.prepared import Prepared
from fluidjax.framework import Program

# Executor._run_prepared: program, what was prepared of it, feed, names, scope, return_numpy, the scope around, written
RunPrepared = Callable[[Program, Prepared, Feed, tuple[str, ...], Scope, bool, Scope, Written], list[Any]]


class Last(NamedTuple):
    """A run that others may repeat: what it asked for, and what ran it.

    Attributes:
        batch: what others are compared with, and what the program was written for.
        place: the executor's.
        flags: the ones that decide how a program is prepared.
        items: the elements of the fetch list.
        merge: whether the devices' values are joined.
        fetches: the names of the fetched variables, and ``names`` those of them on all devices.
        prepared: what ran it; None: stages did.
    """

    batch: Evenly | Unevenly | Alone
    place: Place
    flags: tuple[bool, ...]
    items: tuple[Any, ...]
    merge: bool
    fetches: tuple[str, ...]
    names: tuple[str, ...]
    prepared: Prepared | None

    def asks(self, place: Place, fetch_list: Any, *, merge: bool) -> bool:
        """Whether another run asks for the same."""
        if place is not self.place or merge is not self.merge or type(fetch_list) is not list:
            return False
        return same_items(self.items, fetch_list) and self.flags == preparing_flags()
