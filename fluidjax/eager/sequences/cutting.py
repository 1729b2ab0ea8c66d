"""Where long sequences of ops are cut, so that sequences of other lengths have the same parts.

A sequence is cut between certain pairs of ops, as content-defined chunking cuts files. The pairs are chosen where they
first serve and remain, since the same net for longer sentences is another sequence of the same parts. Where an op that
comes seldom for these shapes stands beside one that comes often, there is a cut as well: what depends on a length
(attention, the slices of a batch) does not keep apart what would be equal without it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

_MEAN, _LEAST, _MOST = 32, 6, 96  # ops per part
_PERIOD = 4  # parts that recur in the same order
_RATIO = 4  # of how often neighbours have come that are in one part
_KINDS = 50_000  # of ops whose occurrences are counted

Span = tuple[int, int]  # the first step of a part, and the one after its last


class Cutting:
    """How sequences are cut, which each of them may add to."""

    def __init__(self) -> None:
        self._marks: set[Any] = set()
        self._times: Counter[Any] = Counter()

    def cut(self, kernels: Sequence[Any], kinds: Sequence[Any]) -> list[Span]:
        """The parts of a sequence in order; ``kinds``: the kernels, each with the specs of what it reads."""
        self._count(kinds)
        self._mark(kernels)
        times = [*map(self._times.__getitem__, kinds)]
        apart = [one >= _RATIO * other or other >= _RATIO * one for one, other in pairwise(times)]
        return [span for before, last in _gaps(apart) for span in self._spans(kernels, before + 1, last + 1)]

    def _spans(self, kernels: Sequence[Any], begin: int, end: int) -> Iterator[Span]:
        """The parts of a stretch of alike frequent ops."""
        marks, first, spans = self._marks, begin, []
        for at in range(begin + 1, end):
            length = at - first
            if length >= _MOST or (length >= _LEAST and (kernels[at - 1], kernels[at]) in marks):
                spans.append((first, at))
                first = at
        spans.append((first, end))
        return iter(spans) if len(spans) == 1 else _joined(spans, kernels)

    def _count(self, kinds: Sequence[Any]) -> None:
        times = self._times
        times.update(kinds)
        if len(times) > _KINDS:
            self._times = Counter({kind: count for kind, count in times.items() if count > _RATIO})

    def _mark(self, kernels: Sequence[Any]) -> None:
        """Choose further pairs at which to cut, where parts would be long.

        Such a part is cut at the pair that occurs about as often as it has parts: once per period, if it is periodic.
        """
        marks = self._marks
        pairs = [*pairwise(kernels)]
        parts = [pairs[begin + 1 : end] for begin, end in _gaps([pair in marks for pair in pairs])]
        while parts:
            part = parts.pop()
            often = {pair: times for pair, times in Counter(part).items() if times > 1} if len(part) > _MOST else {}
            if not often:
                continue
            wanted = len(part) / _MEAN
            mark = min(often, key=lambda pair: abs(often[pair] - wanted))
            marks.add(mark)
            parts += [part[begin + 1 : end] for begin, end in _gaps([pair == mark for pair in part])]


def _gaps(found: Sequence[bool]) -> Iterator[Span]:
    """The places before and after each stretch, which may be empty, in which nothing is found."""
    return pairwise([-1, *[at for at, is_one in enumerate(found) if is_one], len(found)])


def _joined(spans: Sequence[Span], kernels: Sequence[Any]) -> Iterator[Span]:
    """Join repeating short parts into larger ones, up to the maximum length: each call has a cost.

    They are joined by twos, fours ..., so that another number of repetitions gives few others.
    """
    numbers: dict[Any, int] = {}
    kinds = [numbers.setdefault(tuple(kernels[begin:end]), len(numbers)) for begin, end in spans]
    at = 0
    while at < len(spans):
        ways = [(period, _times(kinds, at, period)) for period in range(1, _PERIOD + 1)]
        period, times = max(ways, key=lambda way: way[0] * (way[1] - 1))
        length = spans[at + period - 1][1] - spans[at][0] if times > 1 else _MOST
        count = 1 << (min(_MOST // length, times).bit_length() - 1)  # periods in one part
        if count < 2:
            yield spans[at]
            at += 1
            continue
        yield spans[at][0], spans[at + period * count - 1][1]
        at += period * count


def _times(kinds: Sequence[int], at: int, period: int) -> int:
    """How often the next parts are repeated in a row; 1 if they are not."""
    first, times = kinds[at : at + period], 1
    while kinds[at + times * period : at + (times + 1) * period] == first:
        times += 1
    return times
