"""Keeping recomputed segments apart from their originals.

A program written by ``append_backward(checkpoints=...)`` repeats parts of its forward ops, on variables named
``<name>.subprog_<n>``. To XLA both runs are the same expression: it would merge them and keep the first one's values
alive, which recomputation is meant to avoid. So what a recomputed segment reads passes through an optimization barrier
together with the gradient computed last: the second run has operands of its own, and cannot start earlier.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lowering.engine.dataflow import flow
from lowering.program import OpView, ProgramView

Env = MutableMapping[str, Any]


class Recomputed(NamedTuple):
    """Ops [begin, end) of a block recompute; they read ``reads`` from outside, once ``after`` has been computed."""

    block_idx: int
    begin: int
    end: int
    reads: tuple[str, ...]
    after: tuple[str, ...]


def find_recomputed(program: ProgramView, ops: Sequence[OpView]) -> list[Recomputed]:
    """The recomputed segments among ``ops``, in order."""
    segments: list[Recomputed] = []
    begin = 0
    while begin < len(ops):
        if not ops[begin].recomputes:
            begin += 1
            continue
        end = begin
        while end < len(ops) and ops[end].recomputes:
            end += 1
        reads = tuple(flow(program, ops[begin:end])[0])
        segments.append(Recomputed(ops[begin].block_idx, begin, end, reads, _last_gradient(ops[:begin])))
        begin = end
    return segments


def _last_gradient(ops: Sequence[OpView]) -> tuple[str, ...]:
    for op in reversed(ops):
        if op.computes_gradients and op.output_names():
            return tuple(op.output_names())
    return ()


def separate(segment: Recomputed, env: Env, program: ProgramView, platform: str) -> dict[str, Any]:
    """Values for what ``segment`` reads (except parameters) that exist only after the gradient before it.

    On CPU, XLA drops optimization barriers before it orders instructions and would run the segment early; there the
    values pass through a select whose condition reads the gradient and is true for every number.
    """
    held = {name: env[name] for name in segment.reads if name in env and _varies(segment, env[name], program, name)}
    ties = [leaf for name in segment.after for leaf in jax.tree_util.tree_leaves(env.get(name)) if leaf.size]
    if platform != "cpu" or not ties:
        return jax.lax.optimization_barrier((held, ties))[0]
    first = jnp.ravel(ties[0])[0]
    always = (first == first) | jnp.isnan(first)
    return jax.tree_util.tree_map(lambda leaf: jnp.where(always, leaf, jnp.zeros_like(leaf)), held)


def _varies(segment: Recomputed, value: Any, program: ProgramView, name: str) -> bool:
    """Whether ``value`` is computed in this run: neither known during tracing nor a parameter."""
    if not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree_util.tree_leaves(value)):
        return False
    var = program.find_var(segment.block_idx, name)
    return var is None or not var.persistable
