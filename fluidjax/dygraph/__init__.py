# ruff: noqa: F401, F403  (the names of the modules are gathered here)
"""Eager mode: ops run immediately, on variables that have values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fluidjax.base.later import later
from fluidjax.dygraph import (
    backward_strategy,
    base,
    checkpoint,
    container,
    dygraph_to_static,
    jit,
    layer_object_helper,
    layers,
    learning_rate_scheduler,
    nn,
    parallel,
    parallel_helper,
    profiler,
    tracer,
)
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
from fluidjax.dygraph.checkpoint import *
from fluidjax.dygraph.container import *
from fluidjax.dygraph.jit import declarative, dygraph_to_static_func
from fluidjax.dygraph.layers import *
from fluidjax.dygraph.learning_rate_scheduler import *
from fluidjax.dygraph.math_op_patch import monkey_patch_math_varbase
from fluidjax.dygraph.nn import *
from fluidjax.dygraph.parallel import *
from fluidjax.dygraph.tracer import Tracer
from fluidjax.dygraph.varbase_patch_methods import monkey_patch_varbase
from fluidjax.eager import py_layer_op
from fluidjax.eager.py_layer import PyLayer, PyLayerContext

monkey_patch_math_varbase()
monkey_patch_varbase()

# Each module's names, in the order of Fluid's.
__all__: list[str] = []
__all__ += layers.__all__
__all__ += base.__all__
__all__ += container.__all__
__all__ += nn.__all__
__all__ += parallel.__all__
__all__ += checkpoint.__all__
__all__ += learning_rate_scheduler.__all__
__all__ += backward_strategy.__all__
__all__ += jit.__all__
__all__ += ["ProgramTranslator"]

if TYPE_CHECKING:
    from fluidjax.dygraph import static_runner, traced_layer
    from fluidjax.dygraph.dygraph_to_static import ProgramTranslator
    from fluidjax.dygraph.static_runner import StaticModelRunner
    from fluidjax.dygraph.traced_layer import TracedLayer
else:
    __getattr__, __dir__ = later(
        __name__,
        {
            "ProgramTranslator": "fluidjax.dygraph.dygraph_to_static",
            "StaticModelRunner": "fluidjax.dygraph.static_runner",
            "TracedLayer": "fluidjax.dygraph.traced_layer",
            "static_runner": "fluidjax.dygraph.static_runner",
            "traced_layer": "fluidjax.dygraph.traced_layer",
        },
    )
