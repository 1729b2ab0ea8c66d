"""The ops of loops and branches, each with values that it encounters."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import jax

from fluidjax.gradcheck.local import Env
from lowering.engine.dataflow import sub_blocks
from lowering.engine.runner import Runner
from lowering.errors import LoweringError, NeedsConcrete, NeedsExact
from lowering.program import OpView, ProgramView
from lowering.values import exact

Visits = dict[tuple[int, int], list[tuple[OpView, Env]]]  # (block, op) -> the op with the first and last values met


def visits(program: ProgramView, op: OpView, env: Env, key: Any) -> Visits:
    """The first and last values that the ops in the blocks of ``op`` encounter when it runs at ``env``.

    A branch that is not taken, or a loop without iterations, is run once so that its ops are checked.
    """
    watch = _Watch(program, key)
    watch.run_ops([op], dict(env))
    for block in sub_blocks(op):
        watch.enter(block, env)
    for inner, met in [pair for found in list(watch.found.values()) for pair in found[:1]]:
        for block in sub_blocks(inner):
            watch.enter(block, met)
    return watch.found


def unvisited(program: ProgramView, op: OpView, found: Visits) -> list[OpView]:
    """The ops in the blocks of ``op`` that never ran."""
    missing = []
    for block in sub_blocks(op):
        for inner in program.blocks[block].ops:
            if (block, inner.index) not in found:
                missing.append(inner)
            missing += unvisited(program, inner, found)
    return missing


class _Watch(Runner):
    """A Runner that records the values encountered by ops of sub-blocks."""

    def __init__(self, program: ProgramView, key: Any):
        super().__init__(program, key=key, interpret=True)
        self.found: Visits = {}

    def run_op(self, op: OpView, env: MutableMapping[str, Any]) -> dict[str, Any]:
        if op.block_idx and not op.is_backward:
            met = self.found.setdefault((op.block_idx, op.index), [])
            del met[1:]
            met.append((op, {n: _exact(v) for n, v in env.items()}))
        return super().run_op(op, env)

    def enter(self, block: int, env: Env) -> None:
        """Run a block that has not been entered."""
        ops = self.program.blocks[block].ops
        if any((block, op.index) in self.found for op in ops):
            return
        try:
            self.run_ops(ops, dict(env))
        except (LoweringError, NeedsConcrete, NeedsExact):
            return  # it cannot run at these values; ops it did not reach are reported as unchecked


def _exact(value: Any) -> Any:
    leaves = jax.tree_util.tree_leaves(value)
    return value if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves) else exact(value)
