"""A profiler for eager mode under Fluid's names, based on ``jax.profiler``."""

from __future__ import annotations

import os
import tempfile

import jax

__all__ = ["start_gperf_profiler", "stop_gperf_profiler"]

FOLDER = "FLAGS_profile_path"


def start_gperf_profiler() -> None:
    """Start a trace, written to the directory given by the environment variable FLAGS_profile_path."""
    jax.profiler.start_trace(os.environ.get(FOLDER) or os.path.join(tempfile.gettempdir(), "fluidjax_profile"))


def stop_gperf_profiler() -> None:
    """Stop the trace and write it, for TensorBoard or Perfetto."""
    jax.profiler.stop_trace()
