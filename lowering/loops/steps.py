"""What every step that is traced once and run often has in common: loops, branches and recurrences."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lowering.engine.array_facts import ArrayFacts
from lowering.engine.run import Run

Env = dict[str, Any]


class collected:
    """While a step is traced: random ops depend on the step, and flags of overflows and faults are collected.

    A flag is a tracer of the step. Left in ``Run.overflows`` it would escape from the trace, so the step returns it.

    A step may be traced several times; what it draws does not depend on that (see ``Run.step``).

    Args:
        arrays: what is known of the loop's arrays.
    """

    def __init__(self, runner: Run, turn: Any = None, arrays: ArrayFacts = ArrayFacts()):  # noqa: B008
        self.runner, self.turn, self.arrays = runner, turn, arrays

    def __enter__(self) -> Env:
        runner = self.runner
        self.outside = runner.overflows, runner.arrays, runner.inside
        runner.overflows, runner.inside = {}, True
        runner.arrays = self.arrays
        self.step = runner.step(self.turn)
        self.step.__enter__()
        return runner.overflows

    def __exit__(self, *_: Any) -> None:
        runner = self.runner
        self.step.__exit__(None, None, None)
        runner.overflows, runner.arrays, runner.inside = self.outside


def pass_on(runner: Run, flags: Env) -> None:
    """Flags that came out of a loop or branch belong to the surrounding block."""
    for name, flag in flags.items():
        runner.overflow(name, flag)


def as_arrays(tree: Any) -> Any:
    """The tree with every leaf as a jax array: a carry must enter a step with the types that it leaves it with."""
    return jax.tree_util.tree_map(jnp.asarray, tree)


def write_at(buffer: Any, value: Any, t: Any) -> Any:
    """``buffer[t] = value``, leaf by leaf."""
    return jax.tree_util.tree_map(
        lambda leaf, new: jax.lax.dynamic_update_index_in_dim(leaf, jnp.asarray(new, leaf.dtype), t, 0), buffer, value
    )
