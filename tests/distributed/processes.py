"""The processes of one job on 127.0.0.1, by name."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.ports import free_endpoints

SCRIPT = Path(__file__).with_name("script.py")


ROOT = Path(__file__).parents[2]


class Processes:
    """The processes of one job, by name: server_0, trainer_1 ..."""

    def __init__(
        self, folder: Path, servers: int, trainers: int, command: Sequence[str] = (str(SCRIPT),), **settings: str
    ) -> None:
        self.folder, self.endpoints = folder, free_endpoints(servers)
        self.settings = {
            "PYTHONPATH": str(ROOT), "OUT": str(folder), "PADDLE_TRAINERS_NUM": str(trainers),
            "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(self.endpoints), "FLAGS_rpc_deadline": "20000",
            "FLAGS_rpc_server_linger": "0", "OMP_NUM_THREADS": "1", **settings,
        }  # fmt: skip
        self.command = [sys.executable, *command]
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        """Start a process."""
        kind, _, number = name.partition("_")
        role = {"server": "PSERVER", "trainer": "TRAINER"}[kind]
        own = {"PADDLE_TRAINING_ROLE": role, "TRAINING_ROLE": role}  # a script's own, and the one of launchers
        if kind == "server":
            endpoint = self.endpoints[int(number)]
            own["PADDLE_CURRENT_ENDPOINT"] = endpoint
            own["POD_IP"], own["PADDLE_PORT"] = endpoint.split(":")
        if kind == "trainer":
            own["PADDLE_TRAINER_ID"] = number
        log = open(self.folder / f"{name}.log", "ab")
        with log:
            environment = os.environ | self.settings | own
            self.running[name] = subprocess.Popen(self.command, env=environment, stdout=log, stderr=log)

    def end(self, name: str, seconds: float = 240) -> int:
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
        return [float(line.split()[-1]) for line in file.read_text().splitlines()] if file.exists() else []

    def wait(self, what: Callable[[], bool], seconds: float = 240) -> None:
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
