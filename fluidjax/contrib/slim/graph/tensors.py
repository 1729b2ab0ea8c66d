"""The values of parameters."""

from __future__ import annotations

from typing import Any

from fluidjax.base.errors import explain
from fluidjax.base.scope import Scope


def tensor_of(scope: Scope, name: str) -> Any:
    """The tensor of a variable. Raises KeyError if the scope has none of this name."""
    found = scope.find_var(name)
    if found is None:
        todo = "run the startup program in the scope that the Compressor is given"
        raise KeyError(explain(f"{name} has no value", "a parameter in the scope", "none", todo))
    return found.get_tensor()
