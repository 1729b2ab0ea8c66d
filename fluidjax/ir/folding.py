"""Constant folding: compute once whatever depends on parameters alone."""

from __future__ import annotations

import warnings

import numpy as np

from fluidjax.base.places import CPUPlace
from fluidjax.executor import Executor
from fluidjax.framework.prune import pruned
from fluidjax.ir.rewriter import Rewriter

# The number of bytes by which folding may enlarge a model, per op.
MOST_GROWTH = 1 << 16


def constants(r: Rewriter) -> int:
    """Replace ops with constant inputs by parameters that hold their results."""
    known: set[str] = set()
    folded = []
    for at, op in enumerate(r.views):
        inputs = [name for names in op.inputs.values() for name in names]
        fixed = all(name in known or r.value(name) is not None for name in inputs)
        if fixed and r.pure(at) and all(r.steady(name) for name in r.writes[at]):
            known.update(r.writes[at])
            folded.append(at)
    needed = _needed(r, known, set(folded))
    if not needed:
        return 0
    values = _computed(r, needed)
    good = {name for name, value in values.items() if value is not None}
    gone = [at for at in folded if not any(n in needed and n not in good for n in r.writes[at])]
    gone = [at for at in gone if not set(r.writes[at]).isdisjoint(good) or _unread(r, at, set(gone))]
    for name in sorted(good):
        value = values[name]
        assert value is not None
        r.set(name, value)
    r.remove(*gone)
    return len(gone)


def _needed(r: Rewriter, known: set[str], folded: set[int]) -> list[str]:
    """Constants read by the remaining ops; those written by an op without inputs are left to that op."""
    found = []
    for name in sorted(known):
        (at,) = r.writers[name]
        outside = name in r.fetches or any(reader not in folded for reader in r.readers.get(name, ()))
        if outside and r.views[at].inputs and any(r.views[at].inputs.values()):
            found.append(name)
    return [name for name in found if name not in r.fetches]


def _unread(r: Rewriter, at: int, gone: set[int]) -> bool:
    return all(reader in gone for name in r.writes[at] for reader in r.readers.get(name, ())) and not any(
        name in r.fetches for name in r.writes[at]
    )


def _computed(r: Rewriter, names: list[str]) -> dict[str, np.ndarray | None]:
    """The values of constants; None if ragged, not a tensor, or too large to store."""
    program = pruned(r.program, [], names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        values = Executor(CPUPlace()).run(program, fetch_list=names, scope=r.scope, return_numpy=False)
    found: dict[str, np.ndarray | None] = {}
    for name, value in zip(names, values, strict=True):
        plain = hasattr(value, "lod") and not value.lod()
        array = np.array(value) if plain else None
        (at,) = r.writers[name]
        sizes = [held.nbytes for n in r.reads[at] if (held := r.value(n)) is not None]
        found[name] = array if array is not None and array.nbytes <= MOST_GROWTH + sum(sizes) else None
    return found
