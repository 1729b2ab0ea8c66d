"""The order in which the names of a whole run are passed to its jitted step and returned by it."""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

from fluidjax.base.scope import Scope
from fluidjax.execution.scopes.state import is_plain
from lowering.engine.plan import Plan


class Layout(NamedTuple):
    """How a run's names are passed.

    Attributes:
        replaced: plain arrays that the program reads and writes; the first inputs and, in the same order, the first
            results: jax hands a donated buffer to the first result of its shape, and XLA copies every buffer that
            goes to another variable.
        kept: plain arrays that it only reads.
        others: what else it reads.
        written: results that go into the scope beside those in ``replaced``.
    """

    replaced: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    written: tuple[str, ...] = ()


def lay_out(scope: Scope, plan: Plan, feeds: Container[str], changing: Container[str]) -> Layout:
    """The layout for what ``scope`` holds now; variables that are ``changing`` will hold plain arrays."""
    state = [n for n in plan.reads if n not in feeds]
    plain = [n for n in state if n in changing or is_plain(scope, n)]
    keeps = dict.fromkeys(plan.keeps)
    replaced = tuple(n for n in plain if n in keeps)
    others = dict.fromkeys(state)
    for name in plain:
        del others[name]
    for name in replaced:
        del keeps[name]
    kept = dict.fromkeys(plain)
    for name in replaced:
        del kept[name]
    return Layout(replaced, tuple(kept), tuple(others), tuple(keeps))
