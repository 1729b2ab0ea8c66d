# ruff: noqa: F401  (the names of the whole package are gathered here)
"""Programs: blocks of ops and variables, described in protobuf messages.

The messages are authoritative; Program, Block, Operator, Variable and Parameter are thin views of them.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

from fluidjax.base.enums import VarType, is_floating, to_var_type
from fluidjax.base.flags import get_flags, set_flags
from fluidjax.base.mode import current_tracer as _dygraph_tracer
from fluidjax.base.mode import dygraph_not_support, dygraph_only, in_dygraph_mode
from fluidjax.base.mode import tracer_guard as _dygraph_guard
from fluidjax.base.places import cpu_places, cuda_pinned_places, cuda_places, is_compiled_with_cuda
from fluidjax.base.unknown import unknown_name as _unknown_name
from fluidjax.base.version import require_version
from fluidjax.framework import program as _program
from fluidjax.framework.block import Block
from fluidjax.framework.callstack import user_line
from fluidjax.framework.complex_variable import ComplexVariable
from fluidjax.framework.guards import (
    default_main_program,
    default_startup_program,
    program_guard,
    switch_main_program,
    switch_startup_program,
)
from fluidjax.framework.names import (
    CONTROL_DEP_VAR_PREFIX,
    EMPTY_VAR_NAME,
    GRAD_VAR_SUFFIX,
    TEMP_VAR_NAME,
    ZERO_VAR_SUFFIX,
    grad_var_name,
)
from fluidjax.framework.operator import Operator
from fluidjax.framework.parameter import EagerParameter, Parameter, ParameterMetaClass
from fluidjax.framework.program import Program
from fluidjax.framework.protos import OpProtoHolder, get_all_op_protos
from fluidjax.framework.scopes import NameScope, device_guard, name_scope, switch_device
from fluidjax.framework.scopes import full_name_scope as _full_name_scope
from fluidjax.framework.slicing import getitem as _getitem
from fluidjax.framework.variable import EagerVariable, Variable, VariableMetaClass
from fluidjax.framework.view import program_view
from fluidjax.wrapped_decorator import signature_safe_contextmanager, wrap_decorator

Variable.__getitem__ = _getitem  # type: ignore[method-assign]

ParamBase: Any = None  # filled in by ``eager``, which stands above, as the next
_varbase_creator: Any = None

__all__ = [
    "Program",
    "default_startup_program",
    "default_main_program",
    "program_guard",
    "name_scope",
    "cuda_places",
    "cpu_places",
    "cuda_pinned_places",
    "in_dygraph_mode",
    "is_compiled_with_cuda",
    "Variable",
    "ComplexVariable",
    "load_op_library",
    "require_version",
    "device_guard",
    "set_flags",
    "get_flags",
]


def convert_np_dtype_to_dtype_(np_dtype: Any) -> VarType:
    """The dtype corresponding to a NumPy dtype or its name. Raises ValueError if Fluid has none."""
    return to_var_type(np_dtype)


def dtype_is_floating(dtype: Any) -> bool:
    """Whether a dtype, in any notation, is a floating-point one."""
    return is_floating(dtype)


def _non_static_mode() -> bool:
    return in_dygraph_mode()


def _current_expected_place() -> Any:
    """The place used by eager mode; None in static mode."""
    tracer = _dygraph_tracer()
    return None if tracer is None else tracer.place


@contextlib.contextmanager
def _dygraph_place_guard(place: Any) -> Iterator[None]:
    """Context manager: eager mode uses a place; static mode none."""
    tracer = _dygraph_tracer()
    if tracer is None:
        yield
        return
    before, tracer.place = tracer.place, place
    try:
        yield
    finally:
        tracer.place = before


def load_op_library(lib_filename: str) -> None:
    """Always raises RuntimeError: Fluid uses it to load compiled C++ ops, whereas here ops are Python functions."""
    raise RuntimeError(
        f"load_op_library({lib_filename!r}): a library of C++ ops cannot be loaded, ops are JAX functions here. "
        "Register the op with lowering.op in Python instead."
    )


def generate_control_dev_var_name() -> str:
    """A unique name for a control dependency."""
    return f"{CONTROL_DEP_VAR_PREFIX}@{random.random()}"


def _get_var(name: str, program: Program | None = None) -> Variable:
    """The variable with this name in a program's first block (by default, of the default main program).

    Raises AssertionError if the name is not a string or the program not a Program, ValueError if there is no such
    variable.
    """
    program = default_main_program() if program is None else program
    if not isinstance(name, str) or not isinstance(program, Program):
        received = f"{type(name).__name__} and {type(program).__name__}"
        raise AssertionError(f"_get_var: expected a name and a Program, received {received}; pass var.name")
    return program.global_block().var(name)


def _var_base_to_np(var: Any) -> Any:
    """The NumPy value of an eager variable."""
    return var.numpy()


def __getattr__(name: str) -> Any:
    if name == "global_prog_seed":
        return _program.global_prog_seed
    if name == "_dygraph_tracer_":
        return _dygraph_tracer()
    return _unknown_name(__name__)(name)
