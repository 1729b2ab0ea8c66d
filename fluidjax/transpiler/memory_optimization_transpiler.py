# ruff: noqa: F401  (names are gathered here)
"""Fluid's memory passes, by their old names."""

from fluidjax.memory import memory_optimize, release_memory
