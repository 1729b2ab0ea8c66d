"""Writes eager functions as static programs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fluidjax import unique_name
from fluidjax.base.enums import to_var_type
from fluidjax.base.mode import current_tracer, in_dygraph_mode, writing_for
from fluidjax.dygraph.base import to_variable
from fluidjax.eager.variables.varbase import VarBase
from fluidjax.framework import (
    Parameter,
    Program,
    Variable,
    default_main_program,
    default_startup_program,
    program_guard,
)
from fluidjax.framework.captures import Captures, captured
from fluidjax.layers.math_op_patch import METHODS
from fluidjax.layers.tensor import assign
from fluidjax.to_static.functions import REPLACED
from fluidjax.to_static.values import is_container, items_of, remade

_OPERATORS = (*METHODS, "__neg__", "__getitem__", "astype")


def is_value(value: Any) -> bool:
    """Whether an argument is fed, that is, an eager variable or an array."""
    return isinstance(value, (VarBase, np.ndarray))


def fed(arguments: Any) -> list[Any]:
    """The eager variables and arrays of nested lists, tuples and dicts, in order."""
    if is_container(arguments):
        return [value for item in items_of(arguments) for value in fed(item)]
    return [arguments] if is_value(arguments) else []


def map_values(function: Callable[[Any], Any], arguments: Any) -> Any:
    """Apply a function to each eager variable or array of the arguments."""
    if is_container(arguments):
        return remade(arguments, [map_values(function, item) for item in items_of(arguments)])
    return function(arguments) if is_value(arguments) else arguments


@contextlib.contextmanager
def building() -> Iterator[tuple[Program, Program]]:
    """Context manager: layers write to new (main, startup) programs, and eager variables are captured.

    Eager values keep their names in the program. These were numbered by the tracer, so that the program's own names
    pass over them: one variable for both would hold the wrong value.
    """
    main, startup = Program(), Program()
    main.random_seed = default_main_program().random_seed
    startup.random_seed = default_startup_program().random_seed
    main._captures = Captures(main)
    own_names = unique_name.passing_over(lambda name: _has_var(main, name))
    with writing_for(current_tracer()), program_guard(main, startup), _operators(main), own_names:
        yield main, startup


def _has_var(program: Program, name: str) -> bool:
    return any(name in block.vars for block in program.blocks)


@contextlib.contextmanager
def _operators(program: Program) -> Iterator[None]:
    """Context manager: operators on eager variables write ops to `program`."""

    def operator(method: str) -> Callable[..., Any]:
        return lambda self, *args: getattr(Variable, method)(captured(program, self), *args)

    before = {method: VarBase.__dict__[method] for method in _OPERATORS if method in VarBase.__dict__}
    for method in before:
        setattr(VarBase, method, operator(method))
    try:
        yield
    finally:
        for method, function in before.items():
            setattr(VarBase, method, function)


def to_static_variable(value: Any, name: str | None = None, zero_copy: bool | None = None) -> Any:
    """``to_variable`` in converted code: a program variable for an array; variables are returned unchanged."""
    if in_dygraph_mode() or not isinstance(value, np.ndarray):
        return value if isinstance(value, Variable) else to_variable(value, name, zero_copy)
    program = default_main_program()
    return assign(value) if program._captures is None else captured(program, VarBase(value))


def declare_input(program: Program, value: Any) -> Variable:
    """Declare the variable of a program that a value is fed to."""
    block = program.global_block()
    if isinstance(value, np.ndarray):
        name, stopped = unique_name.generate("feed"), True
    else:
        name, stopped = value.name, value.stop_gradient
    if block.has_var(name):
        name = unique_name.generate(name)
    dtype = to_var_type(value.dtype)
    return Variable(block, name=name, shape=list(value.shape), dtype=dtype, stop_gradient=stopped, is_data=True)


def new_parameters(program: Program) -> list[str]:
    """The parameters created while the program was written, as opposed to captured."""
    assert program._captures is not None
    known = program._captures.values
    every = (v for block in program.blocks for v in block.vars.values())
    return [v.name for v in every if isinstance(v, Parameter) and v.name not in known]


REPLACED[to_variable] = to_static_variable
