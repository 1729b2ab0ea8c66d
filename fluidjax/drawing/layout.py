"""Layout of a directed graph in layers from top to bottom, with few crossings (Sugiyama's method).

Ranks are longest paths; an edge across several ranks gets a bend in each; rows are ordered by barycentres; positions
minimise squared distances: each box is as close to the mean of its neighbours as the others in its row allow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_GAP_X, _GAP_Y = 18.0, 34.0
_SWEEPS = 6

Edge = tuple[int, int]
Point = tuple[float, float]


@dataclass
class Layout:
    """The centre of each box, the bends of each edge from top to bottom, and the total size."""

    centres: list[Point]
    routes: list[list[Point]]
    width: float
    height: float


def layout(sizes: Sequence[Point], edges: Sequence[Edge]) -> Layout:
    """Place boxes of the given sizes. Every edge leads from a box to a later one in the list."""
    ranks = _ranks(len(sizes), edges)
    chains, ranks = _with_bends(edges, ranks)
    widths = [size[0] for size in sizes] + [2.0] * (len(ranks) - len(sizes))
    steps = [step for chain in chains for step in zip(chain, chain[1:], strict=False)]
    rows = _ordered(_rows(ranks), steps)
    x = _across(rows, steps, widths)
    tops, heights = _down(rows, [size[1] for size in sizes])
    y = [tops[rank] + heights[rank] / 2 for rank in ranks]
    centres = [(x[i], y[i]) for i in range(len(sizes))]
    routes = [_route(chain, x, y, sizes, tops, heights, ranks) for chain in chains]
    width = max((x[i] + widths[i] / 2 for i in range(len(x))), default=0.0)
    return Layout(centres, routes, width, tops[-1] + heights[-1] if tops else 0.0)


def _ranks(count: int, edges: Sequence[Edge]) -> list[int]:
    """Longest paths; a box without predecessors is placed directly above its first reader."""
    ranks = [0] * count
    for begin, end in sorted(edges, key=lambda edge: edge[1]):
        ranks[end] = max(ranks[end], ranks[begin] + 1)
    above, below = _neighbours(edges)
    for at in range(count):
        if at not in above and at in below:
            ranks[at] = min(ranks[reader] for reader in below[at]) - 1
    return ranks


def _with_bends(edges: Sequence[Edge], ranks: list[int]) -> tuple[list[list[int]], list[int]]:
    """Each edge as a chain between adjacent ranks, and the ranks of all nodes, including bends."""
    ranks, chains = list(ranks), []
    for begin, end in edges:
        between = range(ranks[begin] + 1, ranks[end])
        bends = list(range(len(ranks), len(ranks) + len(between)))
        ranks += between
        chains.append([begin, *bends, end])
    return chains, ranks


def _rows(ranks: Sequence[int]) -> list[list[int]]:
    rows: list[list[int]] = [[] for _ in range(max(ranks, default=-1) + 1)]
    for at, rank in enumerate(ranks):
        rows[rank].append(at)
    return rows


def _neighbours(steps: Sequence[Edge]) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    above: dict[int, list[int]] = {}
    below: dict[int, list[int]] = {}
    for upper, lower in steps:
        above.setdefault(lower, []).append(upper)
        below.setdefault(upper, []).append(lower)
    return above, below


def _ordered(rows: list[list[int]], steps: Sequence[Edge]) -> list[list[int]]:
    """The row orders with the fewest crossings encountered."""
    above, below = _neighbours(steps)
    best, fewest = [list(row) for row in rows], _crossings(rows, below)
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        near = above if down else below
        order = range(1, len(rows)) if down else range(len(rows) - 2, -1, -1)
        for rank in order:
            place = {at: i for i, at in enumerate(rows[rank - 1 if down else rank + 1])}
            rows[rank] = _by_barycentre(rows[rank], near, place)
        found = _crossings(rows, below)
        if found < fewest:
            best, fewest = [list(row) for row in rows], found
    return best


def _by_barycentre(row: list[int], near: dict[int, list[int]], place: dict[int, int]) -> list[int]:
    """The row sorted by the barycentres of its neighbours; nodes without neighbours keep their position."""
    keys = {at: sum(place[n] for n in near[at]) / len(near[at]) if at in near else i for i, at in enumerate(row)}
    return sorted(row, key=lambda at: keys[at])


def _crossings(rows: list[list[int]], below: dict[int, list[int]]) -> int:
    total = 0
    for upper, lower in zip(rows, rows[1:], strict=False):
        place = {at: i for i, at in enumerate(lower)}
        ends = [end for at in upper for end in sorted(place[n] for n in below.get(at, ()))]
        total += sum(earlier > later for i, later in enumerate(ends) for earlier in ends[:i])
    return total


def _across(rows: list[list[int]], steps: Sequence[Edge], widths: Sequence[float]) -> list[float]:
    above, below = _neighbours(steps)
    x = [0.0] * len(widths)
    for row in rows:
        _set(row, [0.0] * len(row), widths, x)
    for sweep in range(2 * _SWEEPS):
        near = above if sweep % 2 == 0 else below
        for row in rows if sweep % 2 == 0 else reversed(rows):
            wanted = [sum(x[n] for n in near[at]) / len(near[at]) if at in near else x[at] for at in row]
            _set(row, wanted, widths, x)
    left = min((x[at] - widths[at] / 2 for at in range(len(x))), default=0.0)
    return [value - left for value in x]


def _set(row: Sequence[int], wanted: Sequence[float], widths: Sequence[float], x: list[float]) -> None:
    """Place a row in order and without overlaps, minimising the squared distances to the desired positions."""
    offsets = [0.0]
    for left, right in zip(row, row[1:], strict=False):
        offsets.append(offsets[-1] + (widths[left] + widths[right]) / 2 + _GAP_X)
    groups: list[tuple[float, int]] = []  # (mean, how many): neighbours that stand against each other
    for want, offset in zip(wanted, offsets, strict=True):
        mean, count = want - offset, 1
        while groups and groups[-1][0] > mean:
            other, many = groups.pop()
            mean, count = (mean * count + other * many) / (count + many), count + many
        groups.append((mean, count))
    means = [mean for mean, count in groups for _ in range(count)]
    for at, mean, offset in zip(row, means, offsets, strict=True):
        x[at] = mean + offset


def _down(rows: list[list[int]], heights: Sequence[float]) -> tuple[list[float], list[float]]:
    """(the top of each row, its height)."""
    tall = [max((heights[at] for at in row if at < len(heights)), default=0.0) for row in rows]
    tops = [0.0]
    for height in tall[:-1]:
        tops.append(tops[-1] + height + _GAP_Y)
    return tops[: len(rows)], tall


def _route(
    chain: Sequence[int],
    x: Sequence[float],
    y: Sequence[float],
    sizes: Sequence[Point],
    tops: Sequence[float],
    heights: Sequence[float],
    ranks: Sequence[int],
) -> list[Point]:
    """A path from the bottom of the first box, through the rows between, to the top of the last."""
    begin, *bends, end = chain
    points = [(x[begin], y[begin] + sizes[begin][1] / 2)]
    for bend in bends:
        top = tops[ranks[bend]]
        points += [(x[bend], top), (x[bend], top + heights[ranks[bend]])]
    return [*points, (x[end], y[end] - sizes[end][1] / 2)]
