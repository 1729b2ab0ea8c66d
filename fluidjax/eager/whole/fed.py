"""What a step's block is given that comes from the host: it is copied to memory that stays (see ``in_place``).

XLA takes two microseconds for each array of the host, and from 100 KB on a thread of its own; the copies below take
the tenth part of a microsecond and as long as the memory takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from fluidjax.base.dispatch import returns_when_done
from fluidjax.execution.steps.in_place import MOST, in_place
from lowering.host_arrays import empty


class Fed:
    """Memory for those of a block's arguments that come from the host; for none where it would not be used in place.

    Args:
        arguments: of a run; later ones have their shapes and dtypes.
    """

    __slots__ = ("_stands",)

    def __init__(self, arguments: Sequence[Any]) -> None:
        hosts = [(n, array) for n, array in enumerate(arguments) if array.__class__ is np.ndarray]
        self._stands: list[tuple[int, np.ndarray, Any]] = []  # with the device's array on the memory
        if returns_when_done() and sum([array.nbytes for _, array in hosts]) <= MOST:
            for n, array in hosts:
                memory = empty(array.shape, array.dtype)
                if (on_device := in_place(memory)) is not None:
                    self._stands.append((n, memory, on_device))

    def put(self, arguments: list[Any]) -> None:
        """Replace arguments by the device's arrays, once they are copied there. Whatever was run before is done."""
        for n, memory, on_device in self._stands:
            array = arguments[n]
            if array.__class__ is np.ndarray:
                memory[...] = array
                arguments[n] = on_device

    @staticmethod
    def wait(results: Sequence[Any]) -> None:
        """Wait until a run is done: one that was given what is not there yet is computed by a thread of XLA's.

        The results of a run are there all at once.
        """
        if not results[0].is_ready():
            jax.block_until_ready(results)
