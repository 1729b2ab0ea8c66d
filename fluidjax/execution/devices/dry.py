"""Runs on several devices that compute nothing: only feeds and the names of fetches are looked at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fluidjax.base.values import LoDTensor
from fluidjax.execution.devices.shares import Feed
from fluidjax.execution.feeding.feed_checks import checked
from fluidjax.execution.scopes.state import NothingToFetch
from lowering.program import ProgramView


def fetched_of_none(
    program: ProgramView, parts: Sequence[Feed], fetches: Sequence[str], return_numpy: bool, *, merge: bool
) -> list[Any]:
    """What such a run fetches: None or empty tensors, or of each device nothing.

    Raises what ``feed_checks.checked`` does for a share, and NothingToFetch for names that are not declared.
    """
    declared = program.blocks[0].vars
    for name, value in (item for part in parts for item in part.items()):
        checked(declared[name], np.asarray(value), ragged=isinstance(value, LoDTensor) and bool(value.lod()))
    for name in fetches:
        if name not in declared:
            raise NothingToFetch(name, declared)
    return [([] if not merge else None if return_numpy else LoDTensor()) for _ in fetches]
