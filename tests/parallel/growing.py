"""Batches of growing sizes in stages on several devices; run by ``tests.parallel.physical``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers
from fluidjax.execution.executables import background
from fluidjax.execution.rooms.families import Room
from fluidjax.execution.rooms.tiers import Tiers, Visit
from fluidjax.execution.runs.prepared import compilations
from tests.parallel.staged import agree
from tests.parallel.test_data_parallel import Training, assert_same
from tests.parallel.ways import both, repeated, ways


def pooled() -> Any:
    """A bag of words; each share of a batch has ``n`` of them in two texts."""
    words, y = fluid.data("words", [None, 1], "int64", lod_level=1), fluid.data("y", [None, 1], "float32")
    rows = layers.embedding(words, [50, 6], param_attr="emb")
    p = layers.fc(layers.sequence_pool(rows, "sum"), 1, param_attr="w1", bias_attr="b1")
    loss = layers.mean(layers.square_error_cost(p, y))
    fluid.optimizer.SGD(0.01).minimize(loss)

    def feed(step: int, n: int) -> dict[str, Any]:
        draw, lengths = np.random.RandomState(step), [n - 2, 2, 3, n - 3]
        ids = draw.randint(0, 50, (sum(lengths), 1))
        return {"words": fluid.create_lod_tensor(ids, [lengths], fluid.CPUPlace()), "y": draw.rand(4, 1).astype("f4")}

    return loss, feed, [p]


@contextlib.contextmanager
def compiling_beside() -> Iterator[list[int]]:
    """Rooms are compiled beside the runs: those of so many rows, each when the next run that may ask for one ends."""
    wanted: list[int] = []

    def due(self: Tiers, visit: Visit, price: float) -> Room | None:
        if not wanted or not self._beside:
            return None
        room = Room((wanted.pop(0), *visit.room[1:]), ready=False)
        visit.family.rooms.append(room)
        return room

    fluid.set_flags({"FLAGS_background_compilation": True})
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Tiers, "due", due)
            yield wanted
    finally:
        background.wait()
        fluid.set_flags({"FLAGS_background_compilation": False})


def check_rooms_are_compiled_beside_stages() -> None:
    """A run that asks for larger rooms goes on without; one that needs them finds them, on each device."""
    with compiling_beside() as wanted:
        staged, one = both(pooled, 2)
        for step in range(3):
            agree(staged, one, staged.feed(step, 20))
        before = compilations(staged.main)
        wanted += [96, 96]  # of the two devices, after a run that repeats the one before
        agree(staged, one, staged.feed(3, 20))
        assert repeated(staged) and not wanted
        background.wait()
        ahead = compilations(staged.main)
        assert ahead == before + 2
        for step in range(4, 8):
            agree(staged, one, staged.feed(step, 90))
        assert compilations(staged.main) == ahead, "what was compiled beside the runs was not used"
        assert ways(staged) == ["staged"]
        assert_same(staged.values(), one.values(), 2e-5)


def check_seeded_programs_compile_what_they_need() -> None:
    """Rooms then follow from the sizes alone: the same run gives the same bits again."""
    with compiling_beside() as wanted:
        training = Training(pooled, 2)
        training.main.random_seed = 7
        wanted += [96, 96]
        for step in range(4):
            training.run(training.feed(step, 20))
        background.wait()
        assert wanted == [96, 96] and ways(training) == ["staged"]
