"""``python -m benchmarks.page``: measure everything and write docs/performance.md with its plots.

Peers are measured twice, on one processor (CPU time) and on all that this process may use (wall time), then streams
whose batches change their sizes, then growth. Each peer runs once, the ragged networks for a hundred batches, which the
page says; ``--rounds`` and ``--steps`` ask for more. Other work on the machine shows in the numbers. They are also kept
in build/performance.json, after each network, and ``--numbers FILE`` writes the page from such a file without
measuring. ``--short`` takes a few small things once and writes into build/performance: it shows that all of this works,
not what it costs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import fluid_models, fluid_sequences, growth, plots, stream, tables
from benchmarks.__main__ import compare, found_pythons

ROOT = Path(__file__).parent.parent
BUILD = ROOT / "build"


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


def measured(extent: Extent, numbers: Path) -> dict[str, Any]:
    """All numbers; ``numbers`` has them after each part."""
    pythons = found_pythons()
    made = {"rounds": extent.rounds, "steps": extent.steps}
    found: dict[str, Any] = {"machine": tables.machine(), "peers": ["jax", *pythons], **made}

    def keep(part: str, name: str, results: Any) -> None:
        found.setdefault(part, {})[name] = results
        numbers.parent.mkdir(parents=True, exist_ok=True)
        numbers.write_text(json.dumps(found, indent=1))

    def peers(part: str) -> None:
        for model in (*extent.models, *extent.ragged):
            limit = extent.steps if model in extent.ragged else extent.others
            keep(part, model, compare(model, pythons, extent.rounds, limit))

    with one_processor():
        peers("one")
    peers("all")
    for name in extent.streams:
        keep("streams", name, compare(name, pythons, extent.rounds, extent.others))
    for name, kind in growth.KINDS.items():
        keep("growth", name, [growth.measured_cold_and_warm(name, size) for size in kind.sizes[: extent.sizes]])
    return found


def write(numbers: dict[str, Any], folder: Path) -> Path:
    """Write the page and its plots into a folder."""
    images = folder / "performance"
    images.mkdir(parents=True, exist_ok=True)
    for name, rows in numbers.get("growth", {}).items():
        curves = {growth.COLUMNS[c]: [row[c] for row in rows] for c in growth.COLUMNS if c in rows[0]}
        plots.draw(images / f"{name}.svg", curves, [row["size"] for row in rows], growth.KINDS[name].unit)
    page = folder / "performance.md"
    page.write_text(tables.page(numbers))
    return page


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page", description=__doc__)
    parser.add_argument("--short", action="store_true", help="a few small things, into build/performance")
    parser.add_argument("--numbers", metavar="FILE", type=Path, help="write the page from FILE; nothing is measured")
    parser.add_argument("--rounds", type=int, default=ALL.rounds, help="how often each peer runs, once if not said")
    parser.add_argument("--steps", type=int, default=ALL.steps, help="of ragged networks, 100 if not said")
    arguments = parser.parse_args()
    folder = BUILD / "performance" if arguments.short else ROOT / "docs"
    if arguments.numbers is not None:
        found = json.loads(arguments.numbers.read_text())
    elif arguments.short:
        found = measured(SHORT, folder / "numbers.json")
    else:
        found = measured(ALL._replace(rounds=arguments.rounds, steps=arguments.steps), BUILD / "performance.json")
    print(f"written: {write(found, folder)}")


if __name__ == "__main__":
    main()
