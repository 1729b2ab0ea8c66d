"""``paddle.sysconfig``: where a build of C++ code looks for Paddle."""

from pathlib import Path

__all__ = ["get_include", "get_lib"]

_PACKAGE = Path(__file__).parent


def get_include() -> str:
    """The folder ``include`` of the package ``paddle``; fluidjax's ops are Python and have no headers in it."""
    return str(_PACKAGE / "include")


def get_lib() -> str:
    """The folder ``libs`` of the package ``paddle``; fluidjax is no library to link with, and has none in it."""
    return str(_PACKAGE / "libs")
