"""Variables whose form in a program's first run differs from all later runs: another shape, or no value yet.

``auc`` flattens its statistics, ``shuffle_batch`` creates the seed it continues from, a table is reshaped in place.
Two compiled steps, the first of which runs once, would double the time to the second step. Instead, the ops that read
such a variable handle both forms, and the rest of the step is common.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from lowering.engine.dataflow import needs
from lowering.engine.run import Run
from lowering.program import OpView
from lowering.registry import get_op
from lowering.structure import same_structure
from lowering.tracing import trace
from lowering.values import Array


class NeedsOneForm(Exception):
    """Not an error: what the program makes of a variable differs between its first form and its later one."""


@dataclass(frozen=True)
class Either:
    """The value ``before`` (None: there is none) in the ``first`` run, ``after`` in any other."""

    first: Array
    before: Any
    after: Any


def run_either(runner: Run, op: OpView, env: MutableMapping[str, Any]) -> dict[str, Any]:
    """What ``op`` writes: one form, whichever it reads, or two again.

    Raises:
        NeedsOneForm: it runs blocks, or raises flags.
    """
    names = [n for n in needs(runner.program, op) if isinstance(env.get(n), Either)]
    if not names:
        return runner.run_op(op, env)
    if get_op(op.type).kind != "plain":
        raise NeedsOneForm(op.type)
    draws, flags, is_first = dict(runner.draws), dict(runner.overflows), env[names[0]].first

    def run(form: str) -> Any:
        runner.draws = dict(draws)
        given = {n: getattr(env[n], form) for n in names}
        return runner.run_op(op, {**env, **given})

    before, first = trace(lambda: run("before"))
    after, later = trace(lambda: run("after"))
    if runner.overflows != flags or before.keys() != after.keys():
        raise NeedsOneForm(op.type)
    alike = [n for n in before if same_structure(before[n], after[n])]
    chosen = jax.lax.cond(is_first, lambda: _picked(first(), alike), lambda: _picked(later(), alike))
    return chosen | {n: Either(is_first, first()[n], later()[n]) for n in before if n not in alike}


def _picked(values: dict[str, Any], names: list[str]) -> dict[str, Any]:
    return {n: jax.tree_util.tree_map(jnp.asarray, values[n]) for n in names}
