"""``fluid.profiler``: measures the time spent in each kind of op.

While profiling, programs run op by op, each op compiled separately so that it can be timed; compilation is reported
separately. A program that runs as a whole is faster than the sum of its ops, since XLA fuses them, so the report also
contains its time, measured once on copies of the scope's contents.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax

from fluidjax.base.places import get_cuda_device_count
from fluidjax.base.unknown import unknown_name
from fluidjax.execution.runs import mode
from fluidjax.execution.runs.prepared import Prepared
from fluidjax.files import atomic
from lowering.program import OpView

__all__ = ["cuda_profiler", "reset_profiler", "profiler", "start_profiler", "stop_profiler"]

_STATES = ("CPU", "GPU", "All")
_OPTIONS = ("Default", "OpDetail", "AllOpDetail")
_KEYS = ("calls", "total", "max", "min", "ave")


class Event(NamedTuple):
    """One run of an op; times in seconds, with compilation separate."""

    op: str
    detail: str
    start: float
    duration: float
    compiling: float = 0.0


class Step(NamedTuple):
    """One compiled run of a whole program; times in seconds."""

    ops: int
    duration: float
    compiling: float


class _Stopwatch:
    """Seconds that jax has spent compiling since the last query."""

    def __init__(self) -> None:
        self._seconds = 0.0
        jax.monitoring.register_event_duration_secs_listener(self._note)

    def _note(self, event: str, duration_secs: float, **_: Any) -> None:
        if event.startswith("/jax/core/compile/"):
            self._seconds += duration_secs

    def taken(self) -> float:
        seconds, self._seconds = self._seconds, 0.0
        return seconds

    def stop(self) -> None:
        jax.monitoring.unregister_event_duration_listener(self._note)


class _Recorder:
    """Records an event after each op and a step after each program."""

    def __init__(self, detailed: bool) -> None:
        self.detailed = detailed
        self.events: list[Event] = []
        self.steps: list[Step] = []
        self.watch = _Stopwatch()
        self._seen: list[Prepared] = []
        self._mark = time.perf_counter()

    def before_run(self, prepared: Prepared, *given: Any) -> None:
        if not any(prepared is other for other in self._seen):
            self._seen.append(prepared)
            self._time_step(prepared, given)
        self._set_mark()

    def _time_step(self, prepared: Prepared, given: tuple[Any, ...]) -> None:
        self.watch.taken()
        if jax.block_until_ready(prepared.rehearse(*given)) is None:
            return
        compiling, started = self.watch.taken(), time.perf_counter()
        jax.block_until_ready(prepared.rehearse(*given))
        self.steps.append(Step(prepared.ops, time.perf_counter() - started, compiling))

    def _set_mark(self) -> None:
        self.watch.taken()
        self._mark = time.perf_counter()

    def after_op(self, op: OpView, values: dict[str, Any]) -> None:
        jax.block_until_ready([v for v in jax.tree_util.tree_leaves(values) if isinstance(v, jax.Array)])
        taken = time.perf_counter() - self._mark
        compiling = min(self.watch.taken(), taken)
        name = f"{op.type}#{op.index}" if self.detailed else op.type
        self.events.append(Event(name, ", ".join(op.output_names()), self._mark, taken - compiling, compiling))
        self._set_mark()


_recorder: _Recorder | None = None
_before = mode.current


def start_profiler(state: str, tracer_option: str = "Default") -> None:
    """Start profiling.

    Args:
        state: 'CPU', 'GPU' or 'All'; the program is profiled wherever it runs.
        tracer_option: 'Default' aggregates ops by type; 'OpDetail' and 'AllOpDetail' list each op of the program.
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
    """Stop profiling, print a table, and write the events to a file.

    Args:
        sorted_key: the column to sort by, 'calls', 'total', 'max', 'min' or 'ave'; None for order of completion.
        profile_path: file for the events, a trace readable by chrome://tracing and https://ui.perfetto.dev.
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
    recorder.watch.stop()
    print(report(recorder.events, sorted_key, recorder.steps))
    atomic.write_file(profile_path, [json.dumps(_trace(recorder.events)).encode()])


def is_recording() -> bool:
    """Whether it is being measured."""
    return _recorder is not None


def reset_profiler() -> None:
    """Discard all measurements."""
    if _recorder is not None:
        _recorder.events.clear()
        _recorder.steps.clear()


@contextlib.contextmanager
def profiler(
    state: str, sorted_key: str | None = None, profile_path: str = "/tmp/profile", tracer_option: str = "Default"
) -> Iterator[None]:
    """Profile the body of ``with profiler(...):``; arguments as for ``start_profiler`` and ``stop_profiler``."""
    start_profiler(state, tracer_option)
    try:
        yield
    finally:
        stop_profiler(sorted_key, profile_path)


@contextlib.contextmanager
def cuda_profiler(output_file: str, output_mode: str | None = None, config: Any = None) -> Iterator[None]:
    """Record the accelerator's own events within ``with``, using ``jax.profiler``, in the folder ``output_file``.

    ``output_mode`` and ``config`` belong to nvprof and have no effect. Raises RuntimeError without an accelerator.
    """
    if not get_cuda_device_count():
        raise RuntimeError(
            "cuda_profiler: expected an accelerator, but jax sees none; use fluid.profiler.profiler('CPU') instead"
        )
    with jax.profiler.trace(output_file):
        yield


def report(events: list[Event], sorted_key: str | None, steps: Sequence[Step] = ()) -> str:
    """A table with a row per event name and a line per compiled step; times in milliseconds."""
    rows = _rows(events)
    total = sum(row["total"] for row in rows)
    if sorted_key in _KEYS:
        rows.sort(key=lambda row: row[sorted_key], reverse=True)
    width = max([len("Event"), *(len(row["name"]) for row in rows)]) + 2
    lines = [
        "------------------------->     Profiling Report     <-------------------------",
        "",
        f"Place: {jax.default_backend().upper()}, programs run op by op",
        "Time unit: ms",
        f"Sorted by {sorted_key or 'first end'} time in descending order in the same thread",
        "",
        f"Total time: {total:g}",
        *(f"Compiled step of {s.ops} ops: {s.duration * 1e3:g} (compiling: {s.compiling * 1e3:g})" for s in steps),
        "",
        f"{'Event':<{width}}{'Calls':<10}{'Total':<12}{'Min.':<12}{'Max.':<12}{'Ave.':<12}{'Ratio.':<12}Compiling",
    ]
    for row in rows:
        numbers = "".join(f"{row[key]:<12.6g}" for key in ("total", "min", "max", "ave"))
        ratio = row["total"] / total if total else 0
        lines.append(f"{row['name']:<{width}}{row['calls']:<10}{numbers}{ratio:<12.6g}{row['compiling']:.6g}")
    return "\n".join(lines)


def _rows(events: list[Event]) -> list[dict[str, Any]]:
    """One row per name, in order of completion; times in milliseconds."""
    found: dict[str, list[Event]] = {}
    for event in events:
        found.setdefault(event.op, []).append(event)
    rows = []
    for name, those in found.items():
        t = [event.duration * 1e3 for event in those]
        ends = {"calls": len(t), "total": sum(t), "min": min(t), "max": max(t), "ave": sum(t) / len(t)}
        rows.append({"name": name, **ends, "compiling": sum(event.compiling for event in those) * 1e3})
    return rows


def _trace(events: list[Event]) -> dict[str, Any]:
    """Chrome's trace format: the ops and, above them, the time spent compiling them."""
    slices = [_slice(e.op, e.start + e.compiling, e.duration, 0, {"outputs": e.detail}) for e in events]
    compiling = [_slice(f"compile {e.op}", e.start, e.compiling, 1, {}) for e in events if e.compiling]
    return {"displayTimeUnit": "ms", "traceEvents": [*slices, *compiling]}


def _slice(name: str, start: float, duration: float, thread: int, args: dict[str, str]) -> dict[str, Any]:
    times = {"ts": start * 1e6, "dur": duration * 1e6}
    return {"name": name, "ph": "X", "pid": 0, "tid": thread, **times, "args": args}


__getattr__ = unknown_name(__name__)
