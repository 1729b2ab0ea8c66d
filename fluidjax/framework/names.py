"""Fluid's reserved names."""

from __future__ import annotations

from collections.abc import Container

from fluidjax import unique_name
from lowering.program import EMPTY, GRAD

EMPTY_VAR_NAME = EMPTY
TEMP_VAR_NAME = "@TEMP@"
GRAD_VAR_SUFFIX = GRAD
ZERO_VAR_SUFFIX = "@ZERO"
NEW_GRAD_SUFFIX = "@NEWGRAD@"
CONTROL_DEP_VAR_PREFIX = "__control_var"
LOADED_VAR_SUFFIX = "@LOADED"

OP_ROLE = "op_role"
OP_ROLE_VAR = "op_role_var"
OP_NAMESCOPE = "op_namescope"
OP_CALLSTACK = "op_callstack"
OP_DEVICE = "op_device"


def generated_name(taken: Container[str]) -> str:
    """The next ``_generated_var_N`` that is not taken: a program that was loaded may hold some already."""
    name = unique_name.generate("_generated_var")
    while name in taken:
        name = unique_name.generate("_generated_var")
    return name


def grad_var_name(var_name: str) -> str:
    """The name of a variable's gradient."""
    return var_name + GRAD_VAR_SUFFIX
