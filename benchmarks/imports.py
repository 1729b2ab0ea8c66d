"""What importing costs before anything is built, in CPU seconds, in processes of their own in turn."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.__main__ import ROOT, compile_sources

_TIMED = "import time; begin = time.process_time(); import {}; print(time.process_time() - begin)"
_TIMES = 9  # each; the least counts
MODULES = {"fluidjax": "fluidjax", "jax": "jax", "paddle": "paddle.fluid", "torch": "torch"}


def seconds(python: str, module: str) -> float:
    """CPU seconds that a new process takes to import a module."""
    done = subprocess.run([python, "-c", _TIMED.format(module)], cwd=ROOT, capture_output=True, text=True, check=True)
    return float(done.stdout)


def measured(pythons: dict[str, str], times: int | None = None) -> dict[str, float]:
    """The least seconds of each package, by name.

    Args:
        pythons: the Pythons of peers that have one of their own.
        times: how often each is imported.
    """
    compile_sources()
    here = {"fluidjax": sys.executable, "jax": sys.executable}
    found: dict[str, float] = {}
    for _ in range(_TIMES if times is None else min(times, _TIMES)):
        for name, python in {**here, **pythons}.items():
            took = seconds(python, MODULES[name])
            found[name] = min(took, found.get(name, took))
    return found
