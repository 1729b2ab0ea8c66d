"""Jobs of real processes on 127.0.0.1, and what becomes of them when some are killed."""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import fluidjax as fluid
from tests.distributed.jobs import free_ports

SCRIPT = Path(__file__).with_name("script.py")
ROOT = Path(__file__).parents[2]


class Processes:
    """The processes of one job, by name: server_0, trainer_1 ..."""

    def __init__(self, folder: Path, servers: int, trainers: int, **settings: str) -> None:
        self.folder, self.endpoints = folder, free_ports(servers)
        self.settings = {
            "PYTHONPATH": str(ROOT), "OUT": str(folder), "PADDLE_TRAINERS_NUM": str(trainers),
            "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(self.endpoints), "FLAGS_rpc_deadline": "20000",
            "FLAGS_rpc_server_linger": "0", "OMP_NUM_THREADS": "1", **settings,
        }  # fmt: skip
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        """Start a process."""
        kind, _, number = name.partition("_")
        own = {"PADDLE_TRAINING_ROLE": {"server": "PSERVER", "trainer": "TRAINER"}[kind]}
        if kind == "server":
            own["PADDLE_CURRENT_ENDPOINT"] = self.endpoints[int(number)]
        if kind == "trainer":
            own["PADDLE_TRAINER_ID"] = number
        log = open(self.folder / f"{name}.log", "ab")
        with log:
            environment = os.environ | self.settings | own
            self.running[name] = subprocess.Popen(
                [sys.executable, str(SCRIPT)], env=environment, stdout=log, stderr=log
            )

    def end(self, name: str, seconds: float = 60) -> int:
        """The exit code of a process, which is to end in time."""
        try:
            return self.running[name].wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{name} still runs after {seconds} s:\n{self.log(name)}") from None

    def kill(self, name: str) -> None:
        """End a process at once."""
        self.running[name].send_signal(signal.SIGKILL)
        self.running[name].wait()

    def log(self, name: str) -> str:
        """What a process printed."""
        return (self.folder / f"{name}.log").read_text()

    def losses(self, name: str) -> list[float]:
        """The losses that a trainer has written so far."""
        file = self.folder / name
        return [float(line) for line in file.read_text().split()] if file.exists() else []

    def wait(self, what: Callable[[], bool], seconds: float = 60) -> None:
        """Wait for something to become true."""
        limit = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < limit, {name: self.log(name)[-2000:] for name in self.running}
            time.sleep(0.05)

    def stop(self) -> None:
        """Kill all that is left."""
        for process in self.running.values():
            if process.poll() is None:
                process.kill()
            process.wait()


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Callable[..., Processes]]:
    made: list[Processes] = []

    def make(*counts: int, **settings: str) -> Processes:
        made.append(Processes(tmp_path, *counts, **settings))
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


def test_in_async_mode_trainers_go_on_without_one_that_is_killed_and_with_a_server_that_comes_back(job):
    processes = job(1, 2, MODE="async", STEPS="60", PAUSE="0.05", FLAGS_rpc_deadline="30000")
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
    assert done < len(losses) == 60
    assert np.mean(losses[-10:]) < np.mean(losses[:10])
