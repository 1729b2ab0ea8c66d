"""What ``fluid.core`` says of the compiled library that it is in Fluid, and of where that runs."""

from __future__ import annotations

import os

from fluidjax.base.errors import EnforceNotMet
from fluidjax.base.places import Place
from fluidjax.files.compatible import stamp
from fluidjax.framework.descs import ProgramDescView as ProgramDesc

# The library's file in Fluid: its ending, and which instructions it was compiled for.
core_suffix = "so"
# The file that Fluid's versions before 1.7 had it in.
legacy_core = os.path.join(os.path.dirname(os.path.dirname(__file__)), f"core.{core_suffix}")
has_avx_core = has_noavx_core = True


class DeviceContext:
    """Where ops of one device run; made by ``create``."""

    def __init__(self) -> None:
        raise TypeError("DeviceContext: No constructor defined! Expected a place. Call DeviceContext.create(place).")

    @staticmethod
    def create(place: Place) -> DeviceContext:
        """The context of a place."""
        context = object.__new__(DeviceContext)
        context.place = place
        return context

    place: Place


def save_op_compatible_info(desc: ProgramDesc) -> bool:
    """Write into a program's desc which version of Fluid it needs, as saving it does."""
    stamp(desc.proto)
    return True


def avx_supported() -> bool:
    """Whether the processor has AVX: XLA finds out what it has, and Fluid's scripts ask for this alone."""
    return True


def _is_program_version_supported(version: int) -> bool:
    """Whether programs of a version can be read: all are tried."""
    return True


def _dygraph_debug_level() -> int:
    """How much eager mode says of itself: nothing."""
    return 0


def _is_dygraph_debug_enabled() -> bool:
    """Whether eager mode says something of itself."""
    return _dygraph_debug_level() > 0


def __unittest_throw_exception__() -> None:
    """Raise EnforceNotMet, for tests of what catches it."""
    raise EnforceNotMet("This is a test of exception: expected to be caught, raised by a test. Catch it.")
