"""``python -m benchmarks.servers [rounds]``: jobs with two parameter servers on this machine.

``rows``: one process pulls 4,096 rows of 32 floats of a table of 10^6 rows, and pushes gradients for them. ``clicks``:
two trainers of a sparse click network in sync mode, with Paddle 1.8.5 in turn where it is found (see
``benchmarks/__main__.py``). Times are those of the round that took the least CPU time, in milliseconds a step; bytes
are those of a trainer and a step, without the frames that gRPC adds.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.__main__ import ROOT, found_python

LIMIT = 300


def free_endpoints(count: int) -> list[str]:
    """Endpoints on this machine that nobody listens at."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    found = [f"127.0.0.1:{s.getsockname()[1]}" for s in sockets]
    for s in sockets:
        s.close()
    return found


def job(python: str, system: str, trainer: str, trainers: int) -> dict[str, Any]:
    """What the processes of one job measured."""
    endpoints = free_endpoints(2)
    told = {**os.environ, "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1", "NETWORK": trainer, "PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryDirectory() as folder:
        names = [("server", i) for i in range(2)] + [
            ("rows" if trainer == "rows" else "trainer", i) for i in range(trainers)
        ]
        command = [python, "-m", "benchmarks.servers_worker", system]
        running = [
            subprocess.Popen([*command, role, str(i), ",".join(endpoints), folder], env=told, stderr=subprocess.DEVNULL)
            for role, i in names
        ]
        try:
            for process in running[2:]:
                process.wait(LIMIT)
            time.sleep(0.2)
            Path(folder, "stop").touch()
            for process in running[:2]:
                process.wait(LIMIT)
        finally:
            for process in running:
                process.kill()
        return {path.name: json.loads(path.read_text()) for path in Path(folder).glob("*_*")}


def described(name: str, found: dict[str, Any]) -> str:
    """One line."""
    workers = [found[key] for key in sorted(found) if key.startswith("trainer")]
    servers = [found[key]["cpu"] for key in sorted(found) if key.startswith("server")]
    parts = [f"wall median {w['wall']:.2f}, best {w['best']:.2f}, CPU {w['cpu']:.2f}" for w in workers]
    parts.append("servers' CPU " + ", ".join(f"{cpu:.2f}" for cpu in servers))
    if "sent" in workers[0]:
        parts.append(f"{workers[0]['sent']:,} bytes sent, {workers[0]['received']:,} received")
    return f"{name}: " + "; ".join(parts)


def work(found: dict[str, Any]) -> float:
    """CPU time of all processes."""
    return sum(each["cpu"] for each in found.values())


def main(rounds: int) -> None:
    """Measure all jobs in turn."""
    paddle = found_python("FLUIDJAX_PADDLE_PYTHON", "python3.7", "paddle")
    jobs = {"rows": (sys.executable, "fluidjax", "rows", 1), "clicks": (sys.executable, "fluidjax", "clicks", 2)}
    if paddle:
        jobs["clicks, Paddle 1.8.5"] = (paddle, "paddle", "clicks", 2)
    best: dict[str, dict[str, Any]] = {}
    for _ in range(rounds):
        for name, settings in jobs.items():
            best[name] = min([job(*settings), *([best[name]] if name in best else [])], key=work)
    for name, found in best.items():
        print(described(name, found))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
