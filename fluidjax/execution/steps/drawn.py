"""The numbers by which a program's draws are told apart: inputs of a step, for they come from names.

A step that had them as constants would be compiled again for each net whose parameters have other names.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import jax
import numpy as np

from lowering.engine.run import number_of
from lowering.program import OpView, ProgramView
from lowering.registry import get_op


def drawn(program: ProgramView, ops: Sequence[OpView]) -> tuple[str, ...]:
    """The names that ops draw into with the run's seed, in order.

    Args:
        program: all blocks of the step.
        ops: those that it runs: some may stand for one of the program (see ``lowering.engine.remote``).
    """
    every = chain(ops, (op for block in program.blocks for op in block.ops))
    random = (op for op in every if "key" in get_op(op.type).special and not get_op(op.type).own_seed(op.attrs))
    return tuple(dict.fromkeys(op.drawn_into for op in random))


def numbers_of(names: Sequence[str]) -> tuple[Any, ...]:
    """(uint32 [n], the number of each name), on the device; nothing for no names."""
    return (jax.device_put(np.array([*map(number_of, names)], np.uint32)),) if names else ()
