"""Programs made ready for their runs, kept with each program: one for every content, fetch list, feeds and settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fluidjax.execution.devices.processes import meeting
from fluidjax.execution.runs.asked import preparing_flags
from fluidjax.execution.runs.prepared import Prepared
from fluidjax.files.trust import check as check_trusted
from fluidjax.framework import Program, program_view
from lowering.loops.fission import split_loops

if TYPE_CHECKING:
    from fluidjax.execution.devices.written import Written

# The oldest versions of a program that keeps changing are dropped.
_VERSIONS_KEPT = 32


def prepared(
    program: Program, feeds: tuple[str, ...], fetches: tuple[str, ...], platform: str, written: Written | None
) -> Prepared:
    """What runs a program; ``written`` is its form for several devices, if it is for several."""
    cache = program.__dict__.setdefault("_prepared_cache", {})
    checked, beside, deterministic = preparing_flags()
    beside = beside and not (deterministic or program.random_seed)
    key = (program._version_token(), feeds, fetches, platform, checked, beside, written)
    found = cache.get(key)
    if found is None:
        check_trusted(program)
        while len(cache) >= _VERSIONS_KEPT:
            cache.pop(next(iter(cache)))
        view = split_loops(program_view(program), fetches) if written is None else written.view
        spread = meeting(view) if written is None or written.spread is None else written.spread
        owners = {} if written is None else written.owners(feeds)
        found = cache[key] = Prepared(view, feeds, fetches, platform, checked, beside, spread, owners)
    return found
