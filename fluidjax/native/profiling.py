"""The profiler as ``fluid.core`` has it: states, keys and options are enumerations; ``fluid.profiler`` measures."""

from __future__ import annotations

from fluidjax import profiler
from fluidjax.base.enums import FluidEnum
from fluidjax.base.errors import EnforceNotMet


class ProfilerState(FluidEnum):
    """What is measured."""

    kDisabled = 0
    kCPU = 1
    kCUDA = 2
    kAll = 3


class EventSortingKey(FluidEnum):
    """The column that a report is sorted by."""

    kDefault = 0
    kCalls = 1
    kTotal = 2
    kMin = 3
    kMax = 4
    kAve = 5


class TracerOption(FluidEnum):
    """Which ops a report tells apart."""

    kDefault = 0
    kOpDetail = 1
    kAllOpDetail = 2


# By themselves too; the kDefault among them is a key.
kDisabled, kCPU, kCUDA, kAll = ProfilerState
kDefault, kCalls, kTotal, kMin, kMax, kAve = EventSortingKey
kOpDetail, kAllOpDetail = TracerOption.kOpDetail, TracerOption.kAllOpDetail

_STATES = {ProfilerState.kCPU: "CPU", ProfilerState.kCUDA: "GPU", ProfilerState.kAll: "All"}

_option = TracerOption.kDefault


def set_tracer_option(option: TracerOption) -> None:
    """Say which ops the next report tells apart."""
    global _option
    _option = TracerOption(option)


def enable_profiler(state: ProfilerState) -> None:
    """Begin to measure; nothing where it has begun. Raises EnforceNotMet for ``kDisabled``."""
    if state not in _STATES:
        raise EnforceNotMet(
            f"Can't enable profiling, since the input state is {state!r}: expected one of"
            f" {', '.join(map(str, _STATES))}. Pass fluid.core.ProfilerState.kCPU"
        )
    profiler.start_profiler(_STATES[state], _option.name[1:])


def disable_profiler(sorted_key: EventSortingKey, profile_path: str) -> None:
    """End measuring, print a report sorted by a key, and write the events to a file."""
    profiler.stop_profiler(EventSortingKey(sorted_key).name[1:].lower(), profile_path)


def is_profiler_enabled() -> bool:
    """Whether it is being measured."""
    return profiler.is_recording()


def reset_profiler() -> None:
    """Forget what was measured so far."""
    profiler.reset_profiler()
