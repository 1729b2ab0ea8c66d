"""Packages that one corner of fluidjax needs, imported when it is used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from fluidjax.base.errors import explain


def optional(module: str, purpose: str, package: str) -> Any:
    """The module of that name.

    Args:
        purpose: what needs it, and what for: the beginning of the message.
        package: what to give to pip.

    Raises:
        ImportError: it is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        missing = explain(purpose, f"the module {module}", "it is not installed", f"pip install {package}")
        raise ImportError(missing, name=module) from error
