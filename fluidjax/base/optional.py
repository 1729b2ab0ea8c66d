"""Optional dependencies, imported when used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from fluidjax.base.errors import explain


def optional(module: str, purpose: str, package: str) -> Any:
    """Import an optional module.

    Args:
        purpose: what needs it and why: the beginning of the message.
        package: the name to pass to pip.

    Raises:
        ImportError: the module is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        missing = explain(purpose, f"the module {module}", "it is not installed", f"pip install {package}")
        raise ImportError(missing, name=module) from error
