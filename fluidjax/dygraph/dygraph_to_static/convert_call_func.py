"""The replacement for function calls in converted code."""

from __future__ import annotations

import inspect
import types
from typing import Any

from fluidjax.to_static import staged

__all__ = ["convert_call"]


def is_builtin(func: Any) -> bool:
    """Whether Python or NumPy has a function, so that it is called as it is."""
    module = (getattr(func, "__module__", None) or "").partition(".")[0]
    return isinstance(func, types.BuiltinFunctionType) or module in ("builtins", "collections", "copy", "numpy", "re")


def is_paddle_func(func: Any) -> bool:
    """Whether a function or class is of this package."""
    module = inspect.getmodule(func)
    return module is not None and module.__name__.partition(".")[0] == "fluidjax"


def convert_call(func: Any) -> Any:
    """The replacement for `func` in converted code: user functions, methods and layers are converted."""
    return staged.call(func)
