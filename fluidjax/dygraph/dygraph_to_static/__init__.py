# ruff: noqa: F401  (the names of the modules are gathered here)
"""From functions of eager mode to static programs, under Fluid's names; ``fluidjax.to_static`` does the conversion."""

from __future__ import annotations

from fluidjax.dygraph.dygraph_to_static import convert_call_func, partial_program, program_translator
from fluidjax.dygraph.dygraph_to_static.convert_call_func import convert_call
from fluidjax.dygraph.dygraph_to_static.program_translator import ProgramTranslator, convert_function_with_cache

__all__ = ["ProgramTranslator", "convert_call", "convert_function_with_cache"]
