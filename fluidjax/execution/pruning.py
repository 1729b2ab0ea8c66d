"""Runs that ask for a part of a program: ``use_prune``, and optimizers' operators among the fetches.

Fluid keeps what the fetches need, and optimizers: those that the fetch list names, or all of them where it names none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fluidjax.execution.devices.shares import by_name
from fluidjax.framework import Operator, Program

Pruning = Callable[[Program, Any, Any, Any], Program]  # Executor._prune_program: a program, feeds, fetches, optimizers
_KEPT = 8  # parts of one version of a program


def chosen_optimizers(fetch_list: Any) -> tuple[Operator, ...]:
    """The operators among the fetches, and those in what ``minimize`` returned.

    Raises TypeError for an operator that is no optimizer's.
    """
    items = fetch_list if isinstance(fetch_list, (list, tuple)) else ()
    groups = [item if isinstance(item, (list, tuple)) else [item] for item in items]
    flat = [op for group in groups for item in group for op in (item if isinstance(item, list) else [item])]
    ops = [op for op in flat if isinstance(op, Operator)]
    for op in ops:
        if not op._is_optimize_op():
            raise TypeError(
                f"The operator in fetch_list is not an optimize_op: received {op.type}. Expected variables, names, and"
                " operators of an optimizer. Fetch what the operator computes."
            )
    return tuple(ops)


def pruned(program: Program, feeds: Sequence[str], fetches: Sequence[str], ops: Sequence[Operator]) -> Program:
    """The part of a program that computes the fetches and runs optimizers, `ops` or all of the program's."""
    wanted = [_outermost(program, op) for op in ops or _optimizers(program)]
    return program._prune_with_input(list(feeds), [*fetches, *wanted])


def part(
    program: Program, prune: Pruning, feeds: tuple[str, ...], fetches: tuple[str, ...], ops: tuple[Operator, ...]
) -> Program:
    """What ``prune`` makes of a program, kept for the next run that asks for the same part of this version of it."""
    kept: dict[Any, Program] = program.__dict__.setdefault("_pruned_cache", {})
    key = program._version_token(), feeds, fetches, tuple(map(id, ops))
    if key not in kept:
        while len(kept) >= _KEPT:
            kept.pop(next(iter(kept)))
        kept[key] = prune(program, dict.fromkeys(feeds), list(fetches), list(ops))
    return kept[key]


def feed_names(feed: Any) -> tuple[str, ...]:
    """The names of all that is fed, to one device or to several."""
    parts = [feed] if isinstance(feed, dict) else feed if isinstance(feed, (list, tuple)) else []
    return tuple(dict.fromkeys(name for one in parts if isinstance(one, dict) for name in by_name(one)))


def _optimizers(program: Program) -> list[Operator]:
    return [op for block in program.blocks for op in block.ops if op._is_optimize_op()]


def _outermost(program: Program, op: Operator) -> Operator:
    """The op of block 0 that runs an op: itself, or one whose block it is in."""
    while op.block.idx:
        op = next(one for block in program.blocks for one in block.ops if op.block.idx in one._sub_block_ids())
    return op
