"""``paddle.sysconfig``: where builds of C++ code look for Paddle."""

from pathlib import Path

__all__ = ["get_include", "get_lib"]

_PACKAGE = Path(__file__).parent


def get_include() -> str:
    """The directory ``include`` of the package ``paddle``; it has no headers, since fluidjax's ops are Python."""
    return str(_PACKAGE / "include")


def get_lib() -> str:
    """The directory ``libs`` of the package ``paddle``; it has no libraries to link with."""
    return str(_PACKAGE / "libs")
