"""Eager to static: ``declarative``, ``dygraph_to_static_func``, ``TracedLayer``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fluidjax.base.later import later
from fluidjax.base.mode import in_dygraph_mode
from fluidjax.dygraph import dygraph_to_static
from fluidjax.eager.variables.varbase import VarBase
from fluidjax.framework import Program
from fluidjax.to_static.source import DECORATED

if TYPE_CHECKING:
    from fluidjax.dygraph.traced_layer import TracedLayer
else:
    __getattr__, __dir__ = later(
        __name__,
        {"ProgramTranslator": "fluidjax.dygraph.dygraph_to_static", "TracedLayer": "fluidjax.dygraph.traced_layer"},
    )

__all__ = ["TracedLayer", "declarative", "dygraph_to_static_func"]


def create_program_from_desc(program_desc: Any) -> Program:
    """A new program built from a ProgramDesc."""
    return Program.parse_from_string(program_desc.serialize_to_string())


def extract_vars(inputs: Any) -> list[VarBase]:
    """The eager variables among the inputs, including those in lists and tuples, in order."""
    if isinstance(inputs, VarBase):
        return [inputs]
    return [var for each in inputs for var in extract_vars(each)] if isinstance(inputs, (list, tuple)) else []


def declarative(dygraph_func: Callable[..., Any]) -> Callable[..., Any]:
    """Run an eager function or method as a static program.

    Its ``if``, ``for``, ``while`` ... on variables become branches and loops of the program. There is one program per
    signature (shapes and dtypes of variables and arrays, values of other arguments). Gradients flow through it. Called
    while a static program is being written, it writes into that program.
    """

    @functools.wraps(dygraph_func)
    def run(*args: Any, **kwargs: Any) -> Any:
        return dygraph_to_static.ProgramTranslator().get_output(dygraph_func, *args, **kwargs)

    setattr(run, DECORATED, dygraph_func)
    return run


def dygraph_to_static_func(dygraph_func: Callable[..., Any]) -> Callable[..., Any]:
    """Make an eager function write into the current programs when in static mode; in eager mode, it runs as usual."""

    @functools.wraps(dygraph_func)
    def run(*args: Any, **kwargs: Any) -> Any:
        translator = dygraph_to_static.ProgramTranslator()
        if in_dygraph_mode() or not translator.enable_declarative:
            return dygraph_func(*args, **kwargs)
        return translator.get_func(dygraph_func)(*args, **kwargs)

    setattr(run, DECORATED, dygraph_func)
    return run
