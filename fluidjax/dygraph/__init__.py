# ruff: noqa: F401  (the names of the modules are gathered here)
"""Eager mode: ops run at once, on variables that have values."""

from __future__ import annotations

from fluidjax.dygraph import backward_strategy, base, tracer
from fluidjax.dygraph.backward_strategy import BackwardStrategy
from fluidjax.dygraph.base import (
    disable_dygraph,
    disable_imperative,
    enable_dygraph,
    enable_imperative,
    enabled,
    grad,
    guard,
    no_grad,
    to_variable,
)
from fluidjax.dygraph.math_op_patch import monkey_patch_math_varbase
from fluidjax.dygraph.tracer import Tracer

monkey_patch_math_varbase()

# Each module's names, in the order of Fluid's.
__all__: list[str] = []
__all__ += base.__all__
__all__ += backward_strategy.__all__
__all__ += tracer.__all__
