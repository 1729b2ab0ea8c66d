"""A program written for several devices: what it is fed, and what it fetches, for the shares of all."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from fluidjax.base.values import LoDTensor
from fluidjax.execution.devices.shares import Feed, bounds, merged, split
from fluidjax.execution.devices.staged import Staged
from fluidjax.execution.feeding.feed_checks import checked
from fluidjax.execution.steps.mesh import Spread
from lowering.engine.parallel.replicas import Replicated
from lowering.engine.parallel.spread import SpreadProgram
from lowering.program import VarView

Forms = Mapping[str, tuple[tuple[int, ...], np.dtype]]


class Written:
    """A program written for several devices: all of them for one physical device, or spread over as many.

    Args:
        program: the program.
        spread: over which physical devices.
        declared: the variables that a share is fed to, where it is one device's part of an array.
    """

    def __init__(
        self,
        program: Replicated | SpreadProgram,
        spread: Spread | None,
        declared: Mapping[str, VarView] = MappingProxyType({}),
    ):
        self._program = program
        self._declared = declared
        self.view = program.program
        self.state = program.state
        self.spread = spread

    def feed(self, parts: Sequence[Feed]) -> Feed:
        """The program's feed. Raises what ``feed_checks.checked`` does for a share."""
        if self.spread is not None:
            for name in parts[0].keys() & self._program.own:
                checked(self._declared[name], np.asarray(parts[0][name]))
            return {name: _joined([p[name] for p in parts], self._program.own, name) for name in parts[0]}
        found: Feed = {}
        for name in parts[0]:
            found.update(zip(self._program.names(name), (p[name] for p in parts), strict=True))
        return found

    def owners(self, feeds: Collection[str]) -> dict[str, str]:
        """Of these feeds, those that are devices' shares of one variable, but for the first: that variable."""
        own = self._program.own.intersection(feeds)
        return {copy: name for name in own for copy in self._program.names(name)[1:] if copy in feeds}

    def cuts(self, feed: Any, parts: Sequence[Feed]) -> bool:
        """Whether a feed is what these shares were cut from, each variable along its rows, and the program's feed."""
        if (self.spread is None and len(parts) > 1) or type(feed) is not dict or feed.keys() != parts[0].keys():
            return False
        if len(parts) == 1:
            return all(map(_is_share, feed.values()))
        arrays = all(type(value) is np.ndarray and value.ndim for value in feed.values())
        own = self._program.own.issuperset(feed)
        return arrays and own and all(len(value) == len(parts) * len(parts[0][n]) for n, value in feed.items())

    def first(self, name: str, value: Any) -> Any:
        """The first device's share of what is fed under a name."""
        apart = isinstance(self._program, SpreadProgram) and name in self._program.own
        return split(value, self._program.count)[0] if apart else value

    def fetches(self, names: Sequence[str]) -> tuple[str, ...]:
        """The names that the program fetches, each once."""
        return tuple(dict.fromkeys(n for name in names for n in self._program.names(name)))

    def results(self, names: Sequence[str], found: dict[str, Any], *, merge: bool) -> list[Any]:
        """For each fetch the values of all devices, joined or as a list."""
        return [self._result(name, found, merge) for name in names]

    def _result(self, name: str, found: dict[str, Any], merge: bool) -> Any:
        program = self._program
        names = program.names(name)
        if isinstance(program, SpreadProgram) and len(names) < program.count:
            if merge and program.divided(name):
                return found[name]
            values = split(found[name], program.count) if program.divided(name) else [found[name]] * program.count
        else:
            values = [found[n] for n in names]
        return merged(values, name) if merge else values


class Evenly(NamedTuple):
    """The last batch, where it was arrays alone, of which each device had as many rows, and what ran it takes them as
    they are: a spread program, or that of one device. It takes others like them.
    """

    token: Any
    forms: Forms
    written: Written

    def like(self, feed: Any, token: Any) -> bool:
        """Whether a batch is another one like it."""
        return _of_forms(feed, self.forms) and self.token == token

    def given(self, feed: Feed) -> tuple[Any, Any]:
        """The feeds of the devices, and what the program is fed."""
        return feed, feed


class Unevenly(NamedTuple):
    """The last batch, where it was arrays alone whose rows did not go evenly among the devices: stages ran it, and take
    others like it. ``bounds`` are those of each device's rows.
    """

    token: Any
    forms: Forms
    bounds: Sequence[Mapping[str, slice]]
    written: Staged

    @staticmethod
    def of(token: Any, feed: Any, count: int, parts: Sequence[Feed], written: Staged) -> Unevenly | None:
        """A batch of ``count`` devices' shares, ``parts``, that stages run; None if it was no such one."""
        if type(feed) is not dict or feed.keys() != parts[0].keys():
            return None
        if not all(type(value) is np.ndarray and value.ndim for value in feed.values()):
            return None
        if all(len(value) % count == 0 for value in feed.values()):
            return None
        cuts = {name: bounds(len(value), count) for name, value in feed.items()}
        of_devices = [{name: slice(*cut[i]) for name, cut in cuts.items()} for i in range(len(parts))]
        return Unevenly(token, forms_of(feed), of_devices, written)

    def like(self, feed: Any, token: Any) -> bool:
        """Whether a batch is another one like it."""
        return _of_forms(feed, self.forms) and self.token == token

    def given(self, feed: Feed) -> tuple[Any, Any]:
        """The feeds of the devices; a program for all is fed nothing."""
        return [{name: feed[name][rows] for name, rows in part.items()} for part in self.bounds], None


class Alone(NamedTuple):
    """The last batch of one device, which takes arrays and tensors of all sizes as they are."""

    token: Any
    names: frozenset[str]
    written: Written

    def like(self, feed: Any, token: Any) -> bool:
        """Whether a batch is another one like it."""
        same = type(feed) is dict and feed.keys() == self.names and self.token == token
        return same and all(map(_is_share, feed.values()))

    def given(self, feed: Feed) -> tuple[Any, Any]:
        """The feeds of the devices, and what the program is fed."""
        return feed, feed


def forms_of(feed: Mapping[str, np.ndarray]) -> Forms:
    """The forms of arrays, by name."""
    return {name: (value.shape, value.dtype) for name, value in feed.items()}


def _of_forms(feed: Any, forms: Forms) -> bool:
    """Whether a feed is arrays of these forms."""
    return (
        type(feed) is dict
        and feed.keys() == forms.keys()
        and all(type(v) is np.ndarray and (v.shape, v.dtype) == forms[n] for n, v in feed.items())
    )


def _is_share(value: Any) -> bool:
    """Whether one device's share of a value is the value."""
    return type(value) is LoDTensor or (type(value) is np.ndarray and value.ndim > 0)


def _joined(parts: Sequence[Any], own: Collection[str], name: str) -> Any:
    """The shares of all devices joined; where they were cut from one array, that array."""
    if name not in own:
        return parts[0]
    arrays = [np.asarray(p) for p in parts]
    whole = arrays[0].base
    if isinstance(whole, np.ndarray) and whole.shape == (len(parts) * len(arrays[0]), *arrays[0].shape[1:]):
        starts = [whole[i * len(arrays[0]) :] for i in range(len(parts))]
        if all(_same_start(a, b) for a, b in zip(arrays, starts, strict=True)):
            return whole
    return np.concatenate(arrays)


def _same_start(one: np.ndarray, other: np.ndarray) -> bool:
    facts = one.__array_interface__, other.__array_interface__
    return all(facts[0][key] == facts[1][key] for key in ("data", "strides", "typestr"))
