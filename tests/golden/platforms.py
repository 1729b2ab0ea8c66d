"""Running and lowering recorded programs as an accelerator would, on a machine that has none.

Rules choose formulations by platform. Here those of another platform run on the CPU, and every step that they are
traced into is lowered for that platform: what it does not know, or an op that only CPU has, is an error then.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

from fluidjax.execution.executables.executable import Executable
from fluidjax.execution.runs.prepared import Prepared
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
    """Every step is lowered for ``platform`` before it is compiled."""
    lowered, compile = Lowered(), Executable.of

    def watched(traced: Any, **options: Any) -> Executable:
        traced.lower(lowering_platforms=(PLATFORMS[platform],))
        lowered.count += 1
        return compile(traced, **options)

    with mock.patch.object(Executable, "of", watched):
        yield lowered


def replay_as(case: ZooCase, platform: str) -> tuple[Replay, int]:
    """A case's steps as on ``platform``: the judged replay, and how many steps were lowered."""
    replay = Replay(case)
    with formulations(platform), lowering_for(platform) as lowered:
        replay.run(["steps"])
    return replay, lowered.count
