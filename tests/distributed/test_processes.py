"""Jobs of real processes on 127.0.0.1, and what becomes of them when some are killed."""

from __future__ import annotations

import runpy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from tests.distributed.processes import SCRIPT, Processes


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Callable[..., Processes]]:
    made: list[Processes] = []

    def make(*told: Any, **settings: str) -> Processes:
        made.append(Processes(tmp_path, *told, **settings))
        return made[-1]

    yield make
    for processes in made:
        processes.stop()


def test_two_trainers_and_a_server_train_as_one_process_on_the_joined_batch(job, monkeypatch):
    processes = job(1, 2)
    names = ["server_0", "trainer_0", "trainer_1"]
    for name in names:
        processes.start(name)
    _train_alone(processes, monkeypatch)
    assert [processes.end(name) for name in names] == [0, 0, 0]
    mean = np.mean([processes.losses("trainer_0"), processes.losses("trainer_1")], axis=0)
    np.testing.assert_allclose(mean, processes.losses("alone"), rtol=1e-5)


# What 1.8.5 printed for NETWORK=sampled SPARSE=0, of which alone it can make programs for servers.
SAMPLED = {
    "trainer_0": [1.7198745, 1.7164767, 1.7130401, 1.7092105, 1.7059653],
    "trainer_1": [1.7198745, 1.7165632, 1.7130401, 1.7095845, 1.7061243],
}


def test_trainers_see_only_the_rows_of_the_classes_that_a_sparse_nce_draws(job):
    processes = job(2, 2, NETWORK="sampled")
    names = ["server_0", "server_1", "trainer_0", "trainer_1"]
    for name in names:
        processes.start(name)
    assert [processes.end(name) for name in names] == [0, 0, 0, 0]
    for name, losses in SAMPLED.items():
        np.testing.assert_allclose(processes.losses(name), losses, rtol=3e-7)


def _train_alone(processes: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**processes.settings, "PADDLE_TRAINING_ROLE": "ALONE"}.items():
        monkeypatch.setenv(name, value)
    with fluid.unique_name.guard(), fluid.program_guard(fluid.Program(), fluid.Program()), pytest.raises(SystemExit):
        runpy.run_path(str(SCRIPT))


def test_a_trainer_that_is_killed_ends_a_synchronous_job_with_an_error_at_once(job):
    processes = job(1, 2, STEPS="10000", PAUSE="0.02")
    for name in ("server_0", "trainer_0", "trainer_1"):
        processes.start(name)
    processes.wait(lambda: len(processes.losses("trainer_1")) >= 2)
    processes.kill("trainer_1")
    assert processes.end("trainer_0", 15) == 1 and processes.end("server_0", 15) == 1
    assert "trainer 1 ended without completing" in processes.log("server_0")
    assert "RPCError" in processes.log("trainer_0")


@pytest.mark.parametrize("mode", ["transpiled", "geo"])
def test_without_rounds_trainers_go_on_without_one_that_is_killed_and_with_a_server_that_comes_back(
    job, tmp_path, mode
):
    """``python -m tools.kills`` does it at drawn moments, in all modes."""
    (tmp_path / "models").mkdir()
    command = (
        [str(SCRIPT)] if mode == "transpiled" else [str(SCRIPT.with_name("fleet_script.py")), str(tmp_path), mode, "40"]
    )
    processes = job(1, 2, command, MODE="async", STEPS="40", PAUSE="0.05", FLAGS_rpc_deadline="30000")
    for name in ("server_0", "trainer_0", "trainer_1"):
        processes.start(name)
    processes.wait(lambda: min(map(len, map(processes.losses, ("trainer_0", "trainer_1")))) >= 8)
    processes.kill("trainer_1")
    processes.kill("server_0")
    done = len(processes.losses("trainer_0"))
    processes.settings["FLAGS_rpc_deadline"] = "2000"  # as long the new one waits for the other trainer, too
    processes.start("server_0")
    assert processes.end("trainer_0") == 0 and processes.end("server_0") == 0
    losses = processes.losses("trainer_0")
    assert done < len(losses) == 40
    assert np.mean(losses[-10:]) < np.mean(losses[:10])
