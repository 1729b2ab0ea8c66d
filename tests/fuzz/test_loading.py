"""Saved models with one file damaged: FileFormatError or a misfit, and the scope unchanged."""

import random
import time
from pathlib import Path

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.files.errors import FileFormatError, MismatchError, UnsafeNameError
from tests.conftest import seed_of
from tests.files.conftest import VALUES, build, snapshot
from tests.files.conftest import scope as scope  # the fixture
from tests.fuzz.mutate import SECONDS, cases, mutated

REFUSALS = (FileFormatError, MismatchError, UnsafeNameError, FileNotFoundError)
PROGRAM, EXE = build(), fluid.Executor()


def save_model(folder: str, **names: str) -> None:
    fluid.io.save_inference_model(folder, ["x"], [PROGRAM.global_block().var("out")], EXE, PROGRAM, **names)


# How a folder is written, and how it is read into the scope (or into a dict).
READERS = {
    "load": (lambda d: fluid.save(PROGRAM, f"{d}/m"), lambda d: fluid.load(PROGRAM, f"{d}/m", EXE)),
    "load_program_state": (
        lambda d: fluid.save(PROGRAM, f"{d}/m"),
        lambda d: fluid.set_program_state(PROGRAM, fluid.load_program_state(f"{d}/m")),
    ),
    "load_persistables": (
        lambda d: fluid.io.save_persistables(EXE, d, PROGRAM),
        lambda d: fluid.io.load_persistables(EXE, d, PROGRAM),
    ),
    "combined": (
        lambda d: fluid.io.save_persistables(EXE, d, PROGRAM, "all"),
        lambda d: fluid.io.load_persistables(EXE, d, PROGRAM, "all"),
    ),
    "load_inference_model": (save_model, lambda d: fluid.io.load_inference_model(d, EXE)),
    "load_inference_model, combined": (
        lambda d: save_model(d, params_filename="all"),
        lambda d: fluid.io.load_inference_model(d, EXE, params_filename="all"),
    ),
}


@pytest.mark.filterwarnings("ignore")  # of attributes and versions that a damaged program claims
@pytest.mark.parametrize("name", READERS)
def test_damaged(tmp_path, scope, name):
    write, read = READERS[name]
    write(str(tmp_path))
    files = sorted(Path(tmp_path).iterdir())
    sound = {path: path.read_bytes() for path in files}
    draw, end = random.Random(seed_of(name)), time.monotonic() + SECONDS
    before = snapshot(scope)
    read(str(tmp_path))
    assert snapshot(scope) == before
    while time.monotonic() < end:
        path = draw.choice(files)
        path.write_bytes(mutated(sound[path], draw))
        try:
            read(str(tmp_path))
            _restore(scope)
        except REFUSALS:
            assert snapshot(scope) == before, "a refused load has changed the scope"
        path.write_bytes(sound[path])


def _restore(scope: fluid.Scope) -> None:
    """The scope as it was: what was loaded may have other names and values."""
    scope.erase([name for name in scope.local_var_names() if name not in VALUES])
    for name, value in VALUES.items():
        scope.var(name).get_tensor().set(value, fluid.CPUPlace())


def test_multi_slot_text(tmp_path):
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        slots = [fluid.data("label", [None, 1], "int64"), fluid.data("ids", [None, 1], "int64", lod_level=1)]
        slots.append(fluid.data("price", [None, 2], "float32"))
    path = tmp_path / "a.txt"
    dataset = fluid.DatasetFactory().create_dataset("QueueDataset")
    dataset.set_batch_size(2)
    dataset.set_filelist([str(path)])
    dataset.set_use_var(slots)
    for data in cases(b"1 1 2 3 4 2 0.5 1\n1 0 1 7 2 1.5 2\n", seed_of("multi_slot")):
        path.write_bytes(data)
        try:
            for feed in dataset._feeds():
                assert np.array(feed["price"]).shape[1] == 2
        except FileFormatError:
            continue
