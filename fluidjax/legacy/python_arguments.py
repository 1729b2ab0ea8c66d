"""Arguments that functions of Python 3.7's standard library took and later ones refuse.

``json.loads`` and ``json.load`` took an `encoding` and did not look at it (until 3.9): readers of ERNIE's time give
one. ``random.sample`` drew from sets, and ``random.shuffle`` took the function that draws (both until 3.11).
"""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Callable, MutableSequence, Set
from typing import Any

_loads, _sample, _shuffle = json.loads, random.Random.sample, random.Random.shuffle


@functools.wraps(_loads)
def loads(s: str | bytes | bytearray, *, encoding: str | None = None, **kwargs: Any) -> Any:
    """``json.load`` goes through it, too."""
    return _loads(s, **kwargs)


@functools.wraps(_sample)
def sample(self: random.Random, population: Any, k: int, **kwargs: Any) -> list[Any]:
    """A set is drawn from in the order in which it iterates."""
    return _sample(self, tuple(population) if isinstance(population, Set) else population, k, **kwargs)


@functools.wraps(_shuffle)
def shuffle(self: random.Random, x: MutableSequence[Any], random: Callable[[], float] | None = None) -> None:
    """``random()`` draws a float in [0, 1); without one, the generator draws."""
    if random is None:
        _shuffle(self, x)
        return
    for i in reversed(range(1, len(x))):
        j = int(random() * (i + 1))
        x[i], x[j] = x[j], x[i]


def install() -> None:
    """Take the old arguments again."""
    json.loads = loads
    for method in (sample, shuffle):
        name = method.__name__
        drawn_by = getattr(random, name).__self__  # the generator of the module's functions
        setattr(random.Random, name, method)
        setattr(random, name, getattr(drawn_by, name))
