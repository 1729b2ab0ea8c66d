"""What a run asks for, looked up once: most runs of a program ask for the same things as the one before."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from operator import is_
from typing import Any, NamedTuple

from fluidjax.base.flags import FLAGS
from fluidjax.execution.runs.prepared import Prepared
from fluidjax.framework import Program


class Asked(NamedTuple):
    """A run's request, and what was prepared for it.

    Attributes:
        token: identifies the program in the version that ran.
        device: where it ran.
        flags: the ones that decide how a program is prepared.
        feeds: names of the fed variables.
        items: the elements of the fetch list.
        fetches: the names of the fetched variables.
        prepared: what ran it.
    """

    token: Hashable
    device: Any
    flags: tuple[bool, ...]
    feeds: frozenset[str]
    items: tuple[Any, ...]
    fetches: tuple[str, ...]
    prepared: Prepared


def preparing_flags() -> tuple[bool, bool, bool]:
    """The flags for checking values, for compiling rooms beside the runs, and for runs that repeat to the bit."""
    return FLAGS["FLAGS_check_values"], FLAGS["FLAGS_background_compilation"], FLAGS["FLAGS_cpu_deterministic"]


def note(
    program: Program, device: Any, feed: Any, fetch_list: Any, fetches: tuple[str, ...], prepared: Prepared
) -> None:
    """Remember the run, if another one like it can be recognised at a glance."""
    if type(feed) is dict and type(fetch_list) is list:
        token, flags = program._version_token(), preparing_flags()
        program.__dict__["_asked"] = Asked(token, device, flags, frozenset(feed), tuple(fetch_list), fetches, prepared)


def again(program: Any, device: Any, feed: Any, fetch_list: Any) -> Asked | None:
    """The last run of the program, if this one asks for the same of it."""
    if type(program) is not Program or type(feed) is not dict or type(fetch_list) is not list:
        return None
    asked = program.__dict__.get("_asked")
    if asked is None or asked.device is not device or asked.token != program._version_token():
        return None
    same = same_items(asked.items, fetch_list)
    return asked if same and feed.keys() == asked.feeds and asked.flags == preparing_flags() else None


def same_items(items: Sequence[Any], fetch_list: Sequence[Any]) -> bool:
    """Whether fetch lists are the same: by identity, as Variables have an == that makes ops, and names by value, too:
    ``loss.name`` is another string each time.
    """
    if len(items) != len(fetch_list):
        return False
    return all(map(is_, items, fetch_list)) or all(map(_same, items, fetch_list))


def _same(one: Any, other: Any) -> bool:
    return one is other or (type(one) is str and type(other) is str and one == other)
