"""The replacement for function calls in converted code."""

from __future__ import annotations

from typing import Any

from fluidjax.to_static import staged

__all__ = ["convert_call"]


def convert_call(func: Any) -> Any:
    """The replacement for `func` in converted code: user functions, methods and layers are converted."""
    return staged.call(func)
