"""``fluid.profiler``: how long each kind of op takes.

While profiling, programs run op by op, each op compiled by itself, so that its time can be told. A program that runs
as a whole is faster than the sum of its ops: XLA fuses them. The first call of an op includes its compilation.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax

from fluidjax.base.places import get_cuda_device_count
from fluidjax.execution import mode
from fluidjax.files import atomic
from lowering.program import OpView

__all__ = ["cuda_profiler", "reset_profiler", "profiler", "start_profiler", "stop_profiler"]

_STATES = ("CPU", "GPU", "All")
_OPTIONS = ("Default", "OpDetail", "AllOpDetail")
_KEYS = ("calls", "total", "max", "min", "ave")


@dataclass(frozen=True)
class Event:
    """One run of one op; times in seconds."""

    op: str
    detail: str
    start: float
    duration: float


class _Recorder:
    """Notes an event after each op, from one mark to the next."""

    def __init__(self, detailed: bool) -> None:
        self.detailed = detailed
        self.events: list[Event] = []
        self._mark = time.perf_counter()

    def before_run(self) -> None:
        self._mark = time.perf_counter()

    def after_op(self, op: OpView, values: dict[str, Any]) -> None:
        jax.block_until_ready([v for v in jax.tree_util.tree_leaves(values) if isinstance(v, jax.Array)])
        now = time.perf_counter()
        name = f"{op.type}#{op.index}" if self.detailed else op.type
        self.events.append(Event(name, ", ".join(op.output_names()), self._mark, now - self._mark))
        self._mark = time.perf_counter()


_recorder: _Recorder | None = None
_before = mode.current


def start_profiler(state: str, tracer_option: str = "Default") -> None:
    """Begin to measure.

    Args:
        state: 'CPU', 'GPU' or 'All'; what is measured is where the program runs.
        tracer_option: 'Default' adds ops of a type up; 'OpDetail' and 'AllOpDetail' keep each op of the program apart.
    """
    global _recorder, _before
    if state not in _STATES:
        raise ValueError(f"The state must be 'CPU' or 'GPU' or 'All', but received {state!r}; pass one of them")
    if tracer_option not in _OPTIONS:
        raise ValueError(f"tracer option must be 'Default', 'OpDetail', 'AllOpDetail', but received {tracer_option!r}")
    if _recorder is not None:
        return
    _recorder = _Recorder(tracer_option != "Default")
    _before = mode.current
    mode.current = mode.Mode(True, _recorder.after_op, _recorder.before_run)


def stop_profiler(sorted_key: str | None = None, profile_path: str = "/tmp/profile") -> None:
    """End measuring, print a table, and write the events to a file.

    Args:
        sorted_key: the column to sort by, 'calls', 'total', 'max', 'min' or 'ave'; None for the order of first end.
        profile_path: where the events go, as a trace that chrome://tracing and https://ui.perfetto.dev read.
    """
    global _recorder
    if sorted_key not in (None, "default", *_KEYS):
        raise ValueError(
            "The sorted_key must be None or in 'calls', 'total', 'max', 'min' and 'ave', but received "
            f"{sorted_key!r}; pass one of them"
        )
    if _recorder is None:
        return
    recorder, _recorder = _recorder, None
    mode.current = _before
    print(report(recorder.events, sorted_key))
    atomic.write_file(profile_path, [json.dumps(_trace(recorder.events)).encode()])


def reset_profiler() -> None:
    """Forget what was measured so far."""
    if _recorder is not None:
        _recorder.events.clear()


@contextlib.contextmanager
def profiler(
    state: str, sorted_key: str | None = None, profile_path: str = "/tmp/profile", tracer_option: str = "Default"
) -> Iterator[None]:
    """Measure what runs inside ``with profiler(...):``; arguments as for ``start_profiler`` and ``stop_profiler``."""
    start_profiler(state, tracer_option)
    try:
        yield
    finally:
        stop_profiler(sorted_key, profile_path)


@contextlib.contextmanager
def cuda_profiler(output_file: str, output_mode: str | None = None, config: Any = None) -> Iterator[None]:
    """Record the accelerator's own events inside ``with``, by ``jax.profiler``, into the folder ``output_file``.

    ``output_mode`` and ``config`` are nvprof's and have no effect. Raises RuntimeError where there is no accelerator.
    """
    if not get_cuda_device_count():
        raise RuntimeError(
            "cuda_profiler: expected an accelerator, but jax sees none; use fluid.profiler.profiler('CPU') instead"
        )
    with jax.profiler.trace(output_file):
        yield


def report(events: list[Event], sorted_key: str | None) -> str:
    """A table with a row for each event name; times in milliseconds."""
    durations: dict[str, list[float]] = {}
    for event in events:
        durations.setdefault(event.op, []).append(event.duration * 1e3)
    total = sum(map(sum, durations.values()))
    rows = [
        {"name": name, "calls": len(t), "total": sum(t), "min": min(t), "max": max(t), "ave": sum(t) / len(t)}
        for name, t in durations.items()
    ]
    if sorted_key in _KEYS:
        rows.sort(key=lambda row: row[sorted_key], reverse=True)
    width = max([len("Event"), *(len(name) for name in durations)]) + 2
    lines = [
        "------------------------->     Profiling Report     <-------------------------",
        "",
        f"Place: {jax.default_backend().upper()}, programs run op by op",
        "Time unit: ms",
        f"Sorted by {sorted_key or 'first end'} time in descending order in the same thread",
        "",
        f"Total time: {total:g}",
        "",
        f"{'Event':<{width}}{'Calls':<10}{'Total':<12}{'Min.':<12}{'Max.':<12}{'Ave.':<12}Ratio.",
    ]
    for row in rows:
        numbers = "".join(f"{row[key]:<12.6g}" for key in ("total", "min", "max", "ave"))
        lines.append(f"{row['name']:<{width}}{row['calls']:<10}{numbers}{row['total'] / total if total else 0:.6g}")  # type: ignore[operator]
    return "\n".join(lines)


def _trace(events: list[Event]) -> dict[str, Any]:
    return {
        "displayTimeUnit": "ms",
        "traceEvents": [
            {
                "name": event.op,
                "ph": "X",
                "pid": 0,
                "tid": 0,
                "ts": event.start * 1e6,
                "dur": event.duration * 1e6,
                "args": {"outputs": event.detail},
            }
            for event in events
        ],
    }
