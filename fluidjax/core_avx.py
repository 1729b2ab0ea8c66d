"""``fluid.core`` by the name of the compiled library that Fluid's core came from."""

from typing import Any

from fluidjax import core


def __getattr__(name: str) -> Any:
    """All that ``fluid.core`` has."""
    return getattr(core, name)


def __dir__() -> list[str]:
    return dir(core)
