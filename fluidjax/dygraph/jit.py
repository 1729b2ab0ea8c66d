"""From eager to static: ``declarative``, ``dygraph_to_static_func``, ``TracedLayer``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from fluidjax.base.mode import in_dygraph_mode
from fluidjax.dygraph.dygraph_to_static.program_translator import ProgramTranslator
from fluidjax.dygraph.traced_layer import TracedLayer
from fluidjax.eager.varbase import VarBase
from fluidjax.framework import Program
from fluidjax.to_static.convert import DECORATED

__all__ = ["TracedLayer", "declarative", "dygraph_to_static_func"]


def create_program_from_desc(program_desc: Any) -> Program:
    """A program of its own that says what a ProgramDesc says."""
    return Program.parse_from_string(program_desc.serialize_to_string())


def extract_vars(inputs: Any) -> list[VarBase]:
    """The variables of eager mode among the inputs, in lists and tuples too, in their order."""
    if isinstance(inputs, VarBase):
        return [inputs]
    return [var for each in inputs for var in extract_vars(each)] if isinstance(inputs, (list, tuple)) else []


def declarative(dygraph_func: Callable[..., Any]) -> Callable[..., Any]:
    """A function or method of eager mode that runs as a static program.

    Its ``if``, ``for``, ``while`` ... on variables become branches and loops of the program; each signature - shapes
    and types of variables and arrays, other arguments by value - has a program of its own. Gradients flow through it.
    Called while a static program is written, it writes into that.
    """

    @functools.wraps(dygraph_func)
    def run(*args: Any, **kwargs: Any) -> Any:
        return ProgramTranslator().get_output(dygraph_func, *args, **kwargs)

    setattr(run, DECORATED, dygraph_func)
    return run


def dygraph_to_static_func(dygraph_func: Callable[..., Any]) -> Callable[..., Any]:
    """A function of eager mode that in static mode writes into the current programs; in eager mode it just runs."""

    @functools.wraps(dygraph_func)
    def run(*args: Any, **kwargs: Any) -> Any:
        translator = ProgramTranslator()
        if in_dygraph_mode() or not translator.enable_declarative:
            return dygraph_func(*args, **kwargs)
        return translator.get_func(dygraph_func)(*args, **kwargs)

    setattr(run, DECORATED, dygraph_func)
    return run
