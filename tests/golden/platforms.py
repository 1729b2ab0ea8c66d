"""Running and lowering recorded programs as an accelerator would, on a machine that has none.

Rules choose formulations by platform. Here those of another platform run on the CPU, and every step that they are
traced into is lowered for that platform: what it does not know, or an op that only CPU has, is an error then.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

from fluidjax.execution.compiled import Compiled, CompiledOps
from fluidjax.execution.form import given
from fluidjax.execution.prepared import Prepared
from tests.golden.zoocase import ZooCase
from tests.golden.zoorunner import Replay

# What rules call a platform, and what jax lowers for it.
PLATFORMS = {"gpu": "cuda", "tpu": "tpu"}


class Lowered:
    """What was lowered: the number of steps."""

    count = 0


@contextlib.contextmanager
def formulations(platform: str) -> Iterator[None]:
    """Programs are prepared with the formulations of ``platform``, and still run on the CPU."""
    init = Prepared.__init__

    def elsewhere(self: Prepared, program: Any, feeds: Any, fetches: Any, _: str, *options: Any) -> None:
        init(self, program, feeds, fetches, platform, *options)

    with mock.patch.object(Prepared, "__init__", elsewhere):
        yield


@contextlib.contextmanager
def lowering_for(platform: str) -> Iterator[Lowered]:
    """Every jitted step is lowered for ``platform`` before it runs for the first time."""
    lowered, build = Lowered(), CompiledOps._compiled

    def watched(self: CompiledOps, replaced: Any, values: Any, seed: Any) -> Compiled:
        compiled = build(self, replaced, values, seed)
        step: Any = compiled.step  # a jitted function
        traced = step.trace(replaced, given(values), seed)
        traced.lower(lowering_platforms=(PLATFORMS[platform],))
        lowered.count += 1
        return compiled

    with mock.patch.object(CompiledOps, "_compiled", watched):
        yield lowered


def replay_as(case: ZooCase, platform: str) -> tuple[Replay, int]:
    """A case's steps as on ``platform``: the judged replay, and how many steps were lowered."""
    replay = Replay(case)
    with formulations(platform), lowering_for(platform) as lowered:
        replay.run(["steps"])
    return replay, lowered.count
