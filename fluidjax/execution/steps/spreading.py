"""What a step that runs on several devices at once requires of its caller."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fluidjax.execution.scopes.state import on_device
from lowering.engine.checks import over_steps
from lowering.engine.run import number_of
from lowering.mesh import AXIS

# (replaced, values, seed) -> (state, outputs, overflow flags, first fault or None)
Step = Callable[[Any, Any, Any], tuple[Any, Any, Any, Any]]


class Spreading:
    """How a step is spread.

    Attributes:
        alike: whether all devices have the same state, in one process.
    """

    alike = False

    def to_all(self, array: Any, name: str) -> Any:
        """An array of the state, the variable ``name`` or several joined (''), where the step takes it from."""
        return on_device(array)

    def room(self, name: str, like: np.ndarray) -> tuple[np.ndarray, Any] | None:
        """Memory for feeds of a variable, or for seeds (''), of one form, and the array on it that a step is given.

        What is fed is written to the memory as an array of its shape. None: there is no such memory.
        """
        return None

    def read(self, left: tuple[Any, ...], count: int) -> tuple[Any, ...]:
        """What a step left (see ``Compiled``), with all that the host reads, which is all but the first ``count``
        arrays, where that takes it least time.
        """
        return left

    def draws(self, name: str) -> Any:
        """A number that separates the random stream of ``name`` from all others."""
        return number_of(name)

    def over(
        self, step: Step, replaced: Sequence[str], inputs: Sequence[str], outputs: Sequence[str], *, donate: bool
    ) -> Step:
        """``step`` as it is traced; ``replaced`` are the variables of its buffers, '' where one has several."""
        raise NotImplementedError

    def jitted(
        self, run: Callable[..., Any], replaced: Sequence[str], inputs: Sequence[str], donated: tuple[int, ...]
    ) -> Any:
        """``run``, which calls a step, jitted."""
        raise NotImplementedError


def on_each_device(step: Step, *, donate: bool) -> Step:
    """``step`` inside a mesh: overflows and faults of one device are those of all."""

    def run(replaced: Any, values: Any, seed: Any) -> Any:
        state, outputs, overflows, faults = step(replaced, values, seed)
        most = {n: jax.lax.pmax(flag.astype(np.int32), AXIS) for n, flag in overflows.items()}
        overflows = {n: flag.astype(overflows[n].dtype) for n, flag in most.items()}
        if faults is not None:
            faults = over_steps(jax.lax.all_gather(faults, AXIS))
            if donate:
                state = tuple(jnp.where(faults[0] != 0, b, a) for b, a in zip(replaced, state, strict=True))
        return state, outputs, overflows, faults

    return run
