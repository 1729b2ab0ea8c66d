"""What converted code calls in place of a function."""

from __future__ import annotations

from typing import Any

from fluidjax.to_static import staged

__all__ = ["convert_call"]


def convert_call(func: Any) -> Any:
    """What converted code calls in place of `func`: the conversion of the user's functions, methods and layers."""
    return staged.call(func)
