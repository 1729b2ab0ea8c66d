# ruff: noqa: F401  (names are gathered here)
"""Rewriting programs for several machines: trainers with parameter servers, or collective workers."""

from fluidjax.base.unknown import unknown_name as _unknown_name
from fluidjax.transpiler import collective, details, distribute_transpiler
from fluidjax.transpiler.distribute_transpiler import DistributeTranspiler, DistributeTranspilerConfig
from fluidjax.transpiler.memory_optimization_transpiler import memory_optimize, release_memory
from fluidjax.transpiler.ps_dispatcher import HashName, RoundRobin

__all__ = [
    "DistributeTranspiler", "memory_optimize", "release_memory", "HashName", "RoundRobin", "DistributeTranspilerConfig",
]  # fmt: skip

__getattr__ = _unknown_name(__name__)
