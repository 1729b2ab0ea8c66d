"""The recorded scripts of eager mode, run as they stand: all op by op, those that repeat steps with blocks too.

``python -m tests.golden.dygraph`` runs all of them both ways.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from fluidjax.eager.recorded.pending import recorder
from fluidjax.eager.sequences import blocks, chunks, jobs
from fluidjax.eager.sequences.order import one_by_one
from fluidjax.eager.sequences.packs import taken
from tests.dygraph.afresh import nothing_remembered
from tests.golden.dygraph.compare import difference
from tests.golden.dygraph.replay import CASES, names, problem

REPEATING = ["gradient_semantics", "layer_embedding_dense", "mnist_cnn", "nograd_eval_loop", "save_load_resume"]


@pytest.mark.parametrize("name", names())
def test_a_script_gives_what_was_recorded(name: str) -> None:
    assert problem(name, blocks=False) is None


@pytest.mark.parametrize("name", REPEATING)
def test_blocks_give_what_was_recorded(name: str) -> None:
    assert problem(name, blocks=True) is None


class Uncompiled:
    """What a block is asked for and gives, op by op: to count blocks takes no compiler."""

    compilations = 1

    def __init__(self, records, leaves, alive, donated, keeps=False) -> None:
        self.records, self.alive, self.keeps = records, alive, keeps

    def run(self, arrays, alive):
        return one_by_one(self.records, list(map(taken, arrays)), alive)

    def improve(self) -> int:
        """Blocks are compiled once more, and well, by time: not counted here."""
        raise AssertionError("nothing asks for a better block")


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Blocks are counted as if they were compiled, and at once: no other test and no busy machine decides anything."""
    with nothing_remembered():
        monkeypatch.setattr(jobs, "background", SimpleNamespace(submit=lambda task: task()))
        monkeypatch.setattr(blocks, "Whole", Uncompiled)
        monkeypatch.setattr(blocks, "_SECONDS", 1e9)
        monkeypatch.setattr(blocks, "_OFTEN", 0.0)
        monkeypatch.setattr(chunks.Chunk, "compile", lambda chunk, leaves: chunk.run)
        yield


@pytest.mark.usefixtures("counted")
@pytest.mark.parametrize("name", names())
def test_later_epochs_compile_next_to_nothing(name: str) -> None:
    counts = []
    for _ in range(3):
        assert problem(name, blocks=True) is None
        recorder.flush()
        recorder.blocks.wait()
        counts.append(recorder.blocks.compilations)
    assert counts[2] - counts[1] <= 3
    assert counts[2] or name == "layer_all_names", "nothing was counted"


def test_every_script_has_its_recording() -> None:
    scripts = {path.stem for path in CASES.glob("*.py")}
    assert scripts - {"dyg_common"} == set(names()) and len(names()) == 29


def test_a_difference_is_found() -> None:
    recorded = json.loads((CASES.parent / "recorded" / "layer_linear.json").read_text())
    assert difference(recorded, recorded) is None
    name, as_recorded = next(iter(recorded["params"].items()))
    for change in ({"norm": as_recorded["norm"] * 1.01}, {"name": "another"}, {"stop_gradient": True}):
        params = {**recorded["params"], name: {**as_recorded, **change}}
        assert difference(recorded, {**recorded, "params": params}) is not None
