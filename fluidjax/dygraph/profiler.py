"""A profiler of eager mode under the names that Fluid gives it: ``jax.profiler`` traces what runs between them."""

from __future__ import annotations

import os
import tempfile

import jax

__all__ = ["start_gperf_profiler", "stop_gperf_profiler"]

FOLDER = "FLAGS_profile_path"


def start_gperf_profiler() -> None:
    """Begin a trace; it goes to the folder that the environment variable FLAGS_profile_path names."""
    jax.profiler.start_trace(os.environ.get(FOLDER) or os.path.join(tempfile.gettempdir(), "fluidjax_profile"))


def stop_gperf_profiler() -> None:
    """End the trace and write it; TensorBoard and Perfetto show it."""
    jax.profiler.stop_trace()
