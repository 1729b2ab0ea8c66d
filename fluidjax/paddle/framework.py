"""``paddle.framework``: programs, executors, places and parameters."""

from __future__ import annotations

from fluidjax import (
    BuildStrategy,
    CompiledProgram,
    CPUPlace,
    CUDAPinnedPlace,
    CUDAPlace,
    ExecutionStrategy,
    Executor,
    ParallelExecutor,
    ParamAttr,
    Program,
    Variable,
    WeightNormParamAttr,
    default_main_program,
    default_startup_program,
    global_scope,
    name_scope,
    program_guard,
    scope_guard,
)
from fluidjax.backward import append_backward, gradients
from fluidjax.layers import Print, create_global_var, create_parameter, py_func

__all__ = [
    "BuildStrategy", "CPUPlace", "CUDAPinnedPlace", "CUDAPlace", "CompiledProgram", "ExecutionStrategy", "Executor",
    "ParallelExecutor", "ParamAttr", "Print", "Program", "Variable", "WeightNormParamAttr", "append_backward",
    "create_global_var", "create_parameter", "default_main_program", "default_startup_program", "global_scope",
    "gradients", "manual_seed", "name_scope", "program_guard", "py_func", "scope_guard",
]  # fmt: skip


def manual_seed(seed: int) -> None:
    """Let the default programs, and with them eager mode, draw the same numbers each time."""
    default_main_program().random_seed = seed
    default_startup_program().random_seed = seed
