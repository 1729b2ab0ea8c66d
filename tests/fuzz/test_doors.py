"""Models whose structure is nonsense, through each door: it works, or raises an error of this project's."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.base.errors import EnforceNotMet
from fluidjax.core import AnalysisConfig, PaddleTensor, create_paddle_predictor
from fluidjax.export import ragged, to_jax
from fluidjax.export.files import Model
from fluidjax.files.errors import MismatchError, UnsafeNameError, UntrustedProgramError
from fluidjax.serving.model import ServedModel
from fluidjax.serving.tensors import Tensor
from tests.conftest import seed_of
from tests.fuzz.mutate import SECONDS
from tests.fuzz.restructure import harmed, restructured
from tests.here import PLATFORM

pytestmark = pytest.mark.usefixtures("compiled_quickly")

REFUSALS = (EnforceNotMet, MismatchError, UnsafeNameError, UntrustedProgramError)
FEEDS = {"x": np.ones((2, 3, 6, 6), "float32"), "words": np.array([[1], [2], [0]]), "rows": np.ones((2, 3), "float32")}
LENGTHS = {"words": [[2, 1]]}


def picture() -> tuple[list[str], fluid.Variable]:
    """What a classifier of pictures is made of, among it what passes fold."""
    maps = fluid.layers.batch_norm(fluid.layers.conv2d(fluid.data("x", [None, 3, 6, 6]), 4, 3))
    pooled = fluid.layers.dropout(fluid.layers.pool2d(maps, 2, "max", 2), 0.5)
    return ["x"], fluid.layers.fc(pooled, 5, act="softmax")


def sentence() -> tuple[list[str], fluid.Variable]:
    """Rows of sequences."""
    words = fluid.data("words", [None, 1], "int64", lod_level=1)
    vectors = fluid.layers.embedding(words, [5, 4])
    return ["words"], fluid.layers.fc(fluid.layers.sequence_pool(vectors, "last"), 2)


def branch() -> tuple[list[str], fluid.Variable]:
    """Blocks inside blocks. None is a loop's: one whose end was changed may never end, which is no fault of a door."""
    rows = fluid.data("rows", [None, 3])
    hidden = fluid.layers.fc(rows, 3)
    large = fluid.layers.reduce_sum(hidden) > 0

    def inner() -> fluid.Variable:
        return fluid.layers.cond(fluid.layers.reduce_sum(rows) > 9, lambda: hidden * 2.0, lambda: hidden - rows)

    return ["rows"], fluid.layers.cond(large, inner, lambda: rows)


MODELS = (picture, sentence, branch)


def predictor(folder: str, _: str) -> None:
    model = create_paddle_predictor(AnalysisConfig(folder))
    model.run([_tensor(name) for name in model.get_input_names()])


def _tensor(name: str) -> PaddleTensor:
    tensor = PaddleTensor(FEEDS.get(name, FEEDS["rows"]), name)
    if name in LENGTHS:
        tensor.lod = [[0, *np.cumsum(LENGTHS[name][0])]]
    return tensor


def server(folder: str, _: str) -> None:
    model = ServedModel(folder)
    given = {name: FEEDS.get(name, FEEDS["rows"]) for name in model.inputs}
    lods = {name: [[0, *np.cumsum(LENGTHS[name][0]).tolist()]] if name in LENGTHS else [] for name in given}
    model.run({name: Tensor(rows, lods[name]) for name, rows in given.items()})


def function(folder: str, _: str) -> None:
    made, parameters = to_jax(folder)
    given = {name: FEEDS.get(name, FEEDS["rows"]) for name in made.feeds}
    made(parameters, {n: ragged(v, LENGTHS[n]) if n in LENGTHS else v for n, v in given.items()})


def c(folder: str, out: str) -> None:
    Model(folder, None, None).write(out, "c", check=False)


def module(folder: str, out: str) -> None:
    Model(folder, None, None).write(out, "jax")


def stablehlo(folder: str, out: str) -> None:
    Model(folder, None, None).write(out, "stablehlo", platforms=[PLATFORM])


DOORS: tuple[Callable[[str, str], None], ...] = (predictor, server, function, c, module, stablehlo)


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> list[Path]:
    """The folders of the models."""
    root = tmp_path_factory.mktemp("models")
    for build in MODELS:
        main, startup = fluid.Program(), fluid.Program()
        exe = fluid.Executor(fluid.CPUPlace())
        with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
            feeds, out = build()
            exe.run(startup)
            fluid.io.save_inference_model(str(root / build.__name__), feeds, [out], exe, main)
    return [root / build.__name__ for build in MODELS]


def passed(door: Callable[[str, str], None], sound: Path, work: Path, seed: int) -> Exception | None:
    """A changed copy of a model through a door; the error in which it ended, if it is one of ours."""
    draw = random.Random(seed)
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(sound, work / "model")
    if draw.random() < 0.1:
        harmed(work / "model", draw)
    else:
        model = work / "model" / "__model__"
        model.write_bytes(restructured(model.read_bytes(), draw))
    try:
        door(str(work / "model"), str(work / "out"))
    except REFUSALS as error:
        return error
    except ValueError as error:
        if "\n  expected: " in str(error):
            return error
        raise
    return None


@pytest.mark.filterwarnings("ignore")  # of attributes and versions that a damaged program claims
@pytest.mark.parametrize("door", DOORS)
def test_nonsense(saved, tmp_path, door):
    for sound in saved:
        if (door, sound.name) != (stablehlo, "sentence"):  # ragged inputs have no shape
            door(str(sound), str(tmp_path / f"sound {sound.name}"))
    seed, end = seed_of(door.__name__), time.monotonic() + SECONDS
    while time.monotonic() < end:
        seed += 1
        sound = saved[seed % len(saved)]
        try:
            passed(door, sound, tmp_path / "work", seed)
        except Exception as error:
            error.add_note(f"model {sound.name}, seed {seed}")
            raise
