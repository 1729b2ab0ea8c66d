"""``fluid.core`` under the name of the compiled library that contains Fluid's core."""

from typing import Any

from fluidjax import core


def __getattr__(name: str) -> Any:
    """Everything in ``fluid.core``."""
    return getattr(core, name)


def __dir__() -> list[str]:
    return dir(core)
