"""The text of docs/performance.md: tables of what was measured."""

from __future__ import annotations

import datetime
import math
import os
import platform
import re
from typing import Any

from benchmarks.growth import COLUMNS, KINDS, Kind

PEERS = """\
Each peer runs in processes of its own, in turn, {rounds}, and the best of each number counts; ratios below 1 mean that
fluidjax is ahead. Ragged networks run {steps} batches, each of other lengths, again and again for ten CPU seconds:
what is compiled beside the first of them is in their whole time, not in a step. The same networks are written for
hand-written JAX, PyTorch (eager and compiled) and Paddle 1.8.5, as far as each was found: {peers}. First steps count
from the start of building; warm ones find what an earlier process compiled. Paddle runs with its cached programs, its
fastest way here.{again}
"""

# (peer, our number, the peer's, the ratio wanted at most, what it is)
TARGETS = (
    ("jax", "cpu", "cpu", 1.02, "a step"),
    ("torch", "cpu", "cpu", 1.0, "a step"),
    ("torch.compile", "cpu", "cpu", 1.0, "a step"),
    ("paddle", "cpu", "cpu", 1.0, "a step"),
    ("paddle", "warm_cpu", "first_cpu", 1.5, "the first step, warm,"),
    ("jax", "peak", "peak", 1.1, "peak memory"),
)

Results = dict[str, dict[str, dict[str, float]]]


def machine() -> str:
    """Processor, versions and date."""
    import jax
    import jaxlib
    import numpy

    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as file:
            model = next(line.split(":")[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    versions = f"Python {platform.python_version()}, jax {jax.__version__}, jaxlib {jaxlib.__version__}"
    load = f"load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown load"
    return (
        f"{model}, {os.cpu_count()} processors ({load}); {versions}, NumPy {numpy.__version__}; {datetime.date.today()}"
    )


def without_load(machine: str) -> str:
    """What ``machine`` says but for the load and the day."""
    return re.sub(r" \([^()]*load[^()]*\)|; [-0-9]+$", "", machine)


def _rows(heads: list[str], lines: list[list[str]]) -> str:
    """A table."""
    rule = "|" + "---|" * len(heads)
    return "\n".join(["| " + " | ".join(heads) + " |", rule, *("| " + " | ".join(cells) + " |" for cells in lines)])


def _peers(results: Results) -> list[str]:
    return sorted({peer for found in results.values() for peer in found} - {"fluidjax"})


def one_core(results: Results) -> str:
    """CPU time of steps and of first steps, and memory: fluidjax's numbers, and the ratios to each peer's."""
    names = _peers(results)
    lines = []
    for model, found in results.items():
        ours = found.get("fluidjax", {})
        if {"cpu", "warm_cpu"} <= ours.keys():
            first = f"{ours['first_cpu']:.2f}, {ours['warm_cpu']:.2f}"
            ratios = [_ratios(ours, found[n]) if n in found else "" for n in names]
            lines.append([model, f"{1e3 * ours['cpu']:.3f}", first, f"{ours['peak']:.0f}", *ratios])
    heads = ["workload", "CPU ms a step", "first step CPU s, cold, warm", "peak MB", *(f"/ {n}" for n in names)]
    return _rows(heads, lines)


def _ratios(ours: dict[str, float], theirs: dict[str, float]) -> str:
    ratios = [ours["cpu"] / theirs["cpu"], ours["first_cpu"] / theirs["first_cpu"]]
    ratios += [ours["warm_cpu"] / theirs["first_cpu"], ours["peak"] / theirs["peak"]]
    return ", ".join(f"{r:.2f}" for r in ratios)


def all_cores(results: Results) -> str:
    """Wall time of steps and first steps."""
    names = _peers(results)
    lines = []
    for model, found in results.items():
        ours = found.get("fluidjax", {})
        if {"step", "warm"} <= ours.keys():
            both = [("step", "step"), ("first", "first"), ("warm", "first")]
            ratios = [", ".join(f"{ours[a] / found[n][b]:.2f}" for a, b in both) if n in found else "" for n in names]
            lines.append([model, f"{1e3 * ours['step']:.3f}", f"{ours['first']:.2f}, {ours['warm']:.2f}", *ratios])
    return _rows(["workload", "ms a step", "first step s, cold, warm", *(f"/ {n}" for n in names)], lines)


def missed(results: Results) -> str:
    """The workloads that miss each of ``TARGETS``, with their ratios."""
    lines = []
    for peer, ours, theirs, most, what in TARGETS:
        ratios = {
            model: found["fluidjax"][ours] / found[peer][theirs]
            for model, found in results.items()
            if {"fluidjax", peer} <= found.keys() and ours in found["fluidjax"]
        }
        over = [f"{model} {ratio:.2f}" for model, ratio in ratios.items() if ratio > most]
        lines.append([f"{what} at most {most} of {peer}'s", str(len(ratios)), ", ".join(over) or "none"])
    return _rows(["wanted", "workloads", "missed by"], lines)


def streams(results: Results) -> str:
    """Whole runs over batches that change their sizes."""

    def line(model: str, peer: str, r: dict[str, float]) -> list[str]:
        seconds = (r["total"], r["total"] - r["ready"], r["total_cpu"], r["first"], r["longest"])
        return [model.removeprefix("stream_"), peer, *(f"{s:.2f}" for s in seconds)]

    lines = [line(model, peer, r) for model, found in results.items() for peer, r in found.items()]
    heads = ["stream", "run", "total s", "steps alone s", "total CPU s", "first step s", "longest later step s"]
    return _rows(heads, lines)


def imports(results: Results) -> str:
    """What importing each package takes."""
    (found,) = results.values()
    heads = [*found, "fluidjax over jax"]
    return _rows(heads, [[f"{r['cpu']:.3f}" for r in found.values()] + [f"{_over_jax(found):.3f}"]])


def _over_jax(found: dict[str, dict[str, float]]) -> float:
    return found["fluidjax"]["cpu"] - found["jax"]["cpu"]


def growth(rows: list[dict[str, float]], column: str) -> float:
    """The slope between the first and the last size."""
    first, last = rows[0], rows[-1]
    return math.log(last[column] / first[column]) / math.log(last["size"] / first["size"])


def grown(name: str, kind: Kind, rows: list[dict[str, float]]) -> str:
    """Milliseconds of CPU time, a line for each number and a column for each size, and the plot."""
    lines = [
        [title, *(f"{1e3 * row[column]:,.2f}" for row in rows), f"{growth(rows, column):.2f}"]
        for column, title in COLUMNS.items()
        if column in rows[0]
    ]
    heads = ["CPU ms", *(f"{row['size']:,.0f} {kind.unit}" for row in rows), "growth"]
    return f"{kind.title}:\n\n{_rows(heads, lines)}\n\n![CPU time by {kind.unit}](performance/{name}.svg)"


def _section(title: str, text: str, part: dict[str, Any], body: str) -> str:
    return f"## {title}\n\n{text}\n\nMeasured on: {part['machine']}.\n\n{body}\n"


def _peers_text(part: dict[str, Any]) -> str:
    rounds = "once" if part["rounds"] == 1 else f"{part['rounds']} times"
    repeated = ", ".join(part.get("again", ()))
    again = f"\n\nOther work showed in the numbers of these, measured once more: {repeated}." if repeated else ""
    return PEERS.format(peers=", ".join(part["peers"]), rounds=rounds, steps=part["steps"], again=again)


def page(numbers: dict[str, Any]) -> str:
    """The page, with the sections that there are numbers for."""
    steps = "a step, the first step cold, the first step warm (beside the peer's first)"
    made = "Generated by `make performance`; not edited by hand. Each part says what it was measured on.\n"
    sections = [f"# Performance\n\n{made}"]
    if part := numbers.get("one"):
        sections.append(_peers_text(part))
        text = f"CPU time. Ratios: {steps}, peak memory."
        sections.append(_section("Steps on one processor", text, part, one_core(part["results"])))
        text = "What fluidjax asks of itself on one processor, and where this run falls short of it."
        sections.append(_section("Wanted and missed", text, part, missed(part["results"])))
    if part := numbers.get("all"):
        text = f"Wall time. Ratios: {steps}."
        sections.append(_section("Steps on all processors", text, part, all_cores(part["results"])))
    if part := numbers.get("streams"):
        text = "Whole runs from the start of building: the first process compiles, the second finds what it kept.\n"
        text += "Steps alone are those of all batches, the first included, without building and the startup program."
        sections.append(_section("Batches that change their sizes", text, part, streams(part["results"])))
    if part := numbers.get("growth"):
        text = "CPU time of all threads. Growth is the slope from the smallest to the largest size: 1 is linear."
        body = "\n\n".join(grown(name, KINDS[name], rows) for name, rows in part["results"].items())
        sections.append(_section("Growth", text, part, body))
    if part := numbers.get("imports"):
        text = "CPU seconds of a new process for the import alone. Wanted: at most 0.1 s over jax, which is part of it."
        sections.append(_section("Imports", text, part, imports(part["results"])))
    return "\n".join(sections)
