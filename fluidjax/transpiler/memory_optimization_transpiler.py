"""Fluid's memory optimisation passes, which have been no-ops since 1.6."""

from __future__ import annotations

import logging
from typing import Any

from fluidjax.framework import Program

_log = logging.getLogger(__name__)


def _check(program: Any, name: str) -> None:
    if not isinstance(program, Program):
        raise TypeError(f"{name}: {program!r} is no Program. Pass fluid.default_main_program().")
    _log.warning("%s changes nothing: XLA plans the memory of a program, and reuses buffers, by itself.", name)


def memory_optimize(
    input_program: Program, skip_opt_set: Any = None, print_log: bool = False, level: int = 0, skip_grads: bool = True
) -> None:
    """A no-op that logs a message, as in Fluid 1.8. Raises TypeError unless given a Program."""
    _check(input_program, "memory_optimize")


def release_memory(input_program: Program, skip_opt_set: Any = None) -> None:
    """A no-op that logs a message, as in Fluid 1.8. Raises TypeError unless given a Program."""
    _check(input_program, "release_memory")
