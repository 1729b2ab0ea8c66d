"""Damaged models through the C writer: a C file, or an error in words; never another exception."""

import random
import time
from pathlib import Path

import pytest

import fluidjax as fluid
from fluidjax.command import cli
from fluidjax.export.c.build import compiler
from tests.conftest import seed_of
from tests.files.conftest import build
from tests.files.conftest import scope as scope  # the fixture
from tests.fuzz.mutate import SECONDS, mutated


@pytest.mark.filterwarnings("ignore")  # of attributes and versions that a damaged program claims
def test_damaged_models_as_c(tmp_path, scope, capsys):
    assert compiler()
    program = build()
    fluid.io.save_inference_model(
        str(tmp_path / "m"), ["x"], [program.global_block().var("out")], fluid.Executor(), program
    )
    model, words = Path(tmp_path / "m" / "__model__"), ["convert", str(tmp_path / "m"), str(tmp_path / "out")]
    sound, draw, end = model.read_bytes(), random.Random(seed_of("c")), time.monotonic() + SECONDS
    assert cli.main([*words, "--to", "c", "--no-check"]) == 0
    while time.monotonic() < end:
        model.write_bytes(mutated(sound, draw))
        assert cli.main([*words, "--to", "c", "--no-check"]) in (0, 2)
