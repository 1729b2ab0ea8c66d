"""``python -m benchmarks.page``: measure everything and write docs/performance.md with its plots.

Peers are measured twice, on one processor (CPU time) and on all that this process may use (wall time), then streams
whose batches change their sizes, then growth and imports. Each peer runs once, the ragged networks for a hundred
batches, which the page says; ``--rounds`` and ``--steps`` ask for more. Other work on the machine shows in the numbers.

``--parts streams growth`` measures these parts only: the numbers are kept in docs/performance/numbers.json, a part at a
time, each with its own machine and day, and the page is written from all that are there. Without a part
(``--parts``) nothing is measured. ``--parts one --again mlp lenet`` measures these networks once more where other work
showed in the numbers: of each number of each peer the best counts, and the page names them. ``--short`` takes a few
small things once and writes into build/performance: it shows that all of this works, not what it costs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import fluid_models, fluid_sequences, growth, imports, plots, stream, tables
from benchmarks.__main__ import best, compare, found_pythons

ROOT = Path(__file__).parent.parent
BUILD = ROOT / "build"
NOTHING: dict[str, Any] = {"results": {}}

Measurements = Iterator[tuple[str, Any]]


class Extent(NamedTuple):
    """How much is measured.

    Attributes:
        models, ragged, streams: names of networks; the ragged ones have another batch in each step.
        rounds: how often each peer runs.
        steps: of the ragged ones, at most; ``others`` those of the others and of streams. None: all.
        sizes: of each growth.
    """

    models: tuple[str, ...]
    ragged: tuple[str, ...]
    streams: tuple[str, ...]
    rounds: int
    steps: int
    others: int | None
    sizes: int | None

    def only(self, names: Iterable[str]) -> Extent:
        """The same of these networks only."""
        models, ragged, streams = (
            tuple(n for n in of if n in names) for of in (self.models, self.ragged, self.streams)
        )
        return self._replace(models=models, ragged=ragged, streams=streams)


ALL = Extent(tuple(fluid_models.MODELS), tuple(fluid_sequences.MODELS), tuple(stream.MODELS), 1, 100, None, None)
SHORT = Extent(("fit_a_line",), (), ("stream_lac_tagger",), 1, 9, 9, 2)


@contextlib.contextmanager
def one_processor() -> Iterator[None]:
    """Let processes that are started meanwhile use one processor only, where the system can say so."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    usual = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(usual)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, usual)


def peers_of(extent: Extent, pythons: dict[str, str]) -> Measurements:
    """Steps and first steps of each network, a network at a time."""
    for model in (*extent.models, *extent.ragged):
        limit = extent.steps if model in extent.ragged else extent.others
        yield model, compare(model, pythons, extent.rounds, limit)


def one_of(extent: Extent, pythons: dict[str, str]) -> Measurements:
    """The same on one processor."""
    with one_processor():
        yield from peers_of(extent, pythons)


def streams_of(extent: Extent, pythons: dict[str, str]) -> Measurements:
    """Whole runs over batches that change their sizes."""
    for name in extent.streams:
        yield name, compare(name, pythons, extent.rounds, extent.others)


def growth_of(extent: Extent, pythons: dict[str, str]) -> Measurements:
    """What is measured at several sizes."""
    for name, kind in growth.KINDS.items():
        yield name, [growth.measured_cold_and_warm(name, size) for size in kind.sizes[: extent.sizes]]


def imports_of(extent: Extent, pythons: dict[str, str]) -> Measurements:
    """What importing costs."""
    yield "import", {name: {"cpu": took} for name, took in imports.measured(pythons, extent.others).items()}


PARTS: dict[str, Callable[[Extent, dict[str, str]], Measurements]] = {
    "one": one_of,
    "all": peers_of,
    "streams": streams_of,
    "growth": growth_of,
    "imports": imports_of,
}


def measure(parts: Iterable[str], extent: Extent, kept: Path) -> None:
    """Measure parts; each replaces its kept numbers when it is complete."""
    pythons = found_pythons()
    for part in parts:
        made = {"rounds": extent.rounds, "steps": extent.steps, "peers": ["jax", *pythons]}
        found = {"machine": tables.machine(), **made, "results": dict(PARTS[part](extent, pythons))}
        keep(kept, part, found)


def measure_again(parts: Iterable[str], names: Iterable[str], extent: Extent, kept: Path) -> None:
    """Measure networks of parts once more; of each number that is kept and measured the best counts.

    Raises ValueError where the kept numbers are of another machine or of other versions.
    """
    pythons = found_pythons()
    for part in parts:
        before = json.loads(kept.read_text())[part]
        here = tables.machine()
        if tables.without_load(here) != tables.without_load(before["machine"]):
            raise ValueError(
                f"numbers of {part} were measured on another machine: {before['machine']}\n  this one: {here}\n"
                "  what to do: measure the whole part here, without --again"
            )
        results = before["results"]
        for name, found in PARTS[part](extent.only(names), pythons):
            results[name] = {
                peer: best([numbers, results[name][peer]]) if peer in results[name] else numbers
                for peer, numbers in (results[name] | found).items()
            }
        keep(kept, part, {**before, "again": sorted({*before.get("again", ()), *names})})


def keep(kept: Path, part: str, found: dict[str, Any]) -> None:
    """Write the numbers of a part beside those of the others."""
    numbers = json.loads(kept.read_text()) if kept.exists() else {}
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps({**numbers, part: found}, indent=1) + "\n")


def write(numbers: dict[str, Any], folder: Path) -> Path:
    """Write the page and its plots into a folder."""
    images = folder / "performance"
    images.mkdir(parents=True, exist_ok=True)
    for name, rows in numbers.get("growth", NOTHING)["results"].items():
        curves = {growth.COLUMNS[c]: [row[c] for row in rows] for c in growth.COLUMNS if c in rows[0]}
        plots.draw(images / f"{name}.svg", curves, [row["size"] for row in rows], growth.KINDS[name].unit)
    page = folder / "performance.md"
    page.write_text(tables.page(numbers))
    return page


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page", description=__doc__)
    parser.add_argument("--short", action="store_true", help="a few small things, into build/performance")
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=list(PARTS), help="what to measure, usually all")
    parser.add_argument("--again", nargs="+", metavar="NETWORK", help="measure only these of the parts, once more")
    parser.add_argument("--rounds", type=int, default=ALL.rounds, help="how often each peer runs, once if not said")
    parser.add_argument("--steps", type=int, default=ALL.steps, help="of ragged networks, 100 if not said")
    arguments = parser.parse_args()
    folder = BUILD / "performance" if arguments.short else ROOT / "docs"
    extent = SHORT if arguments.short else ALL._replace(rounds=arguments.rounds, steps=arguments.steps)
    kept = folder / "performance" / "numbers.json"
    if arguments.again:
        unknown = set(arguments.again).difference(extent.models, extent.ragged, extent.streams)
        if unknown or not {"one", "all", "streams"}.issuperset(arguments.parts):
            parser.error(f"--again takes networks of --parts one, all or streams; not {', '.join(unknown) or 'others'}")
        measure_again(arguments.parts, arguments.again, extent, kept)
    else:
        measure(arguments.parts, extent, kept)
    print(f"written: {write(json.loads(kept.read_text()), folder)}")


if __name__ == "__main__":
    main()
