"""The conversion of one function, under Fluid's name for it."""

from __future__ import annotations

from typing import Any

from fluidjax.dygraph.dygraph_to_static.program_translator import convert_function_with_cache

__all__ = ["convert_to_static"]


def convert_to_static(dyfunc: Any) -> Any:
    """The function that writes into the current programs what `dyfunc` computes; the same one each time."""
    return convert_function_with_cache(dyfunc)
