"""``python -m benchmarks.scaling [NETWORK ...]``: steps on 1, 2, 4 and 8 devices of a host.

The work of each device is the same.
For each number of devices a process of its own, on one core, runs these in turn; times are the best of several rounds:

=======  ===============================================================
plain    the plain step over the whole batch
shares   the plain step over one device's share, times the devices
on one   all devices written out for one
spread   the step spread over physical devices
staged   the same with one row less, so that shares differ
sums     the sums of the gradients alone, as stages call them
=======  ===============================================================

The last number of each line is what ``staged`` takes beyond ``shares`` and ``sums``, in percent of ``shares``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

import fluidjax as fluid
from benchmarks import fluid_models
from fluidjax import layers
from fluidjax.execution.devices.sums import Sums

ROUNDS = 15


def mlp() -> tuple[Any, dict[str, np.ndarray], int]:
    """The loss of 256-256-256-10 with Momentum, a share of 128 rows, and steps in a round."""
    x, y = fluid.data("x", [None, 256], "float32"), fluid.data("y", [None, 1], "int64")
    hidden = layers.fc(layers.fc(x, 256, act="relu"), 256, act="relu")
    loss = layers.mean(layers.softmax_with_cross_entropy(layers.fc(hidden, 10), y))
    fluid.optimizer.Momentum(0.01, 0.9).minimize(loss)
    draw = np.random.RandomState(0)
    return loss, {"x": draw.rand(128, 256).astype("float32"), "y": draw.randint(0, 10, (128, 1))}, 10


def resnet20() -> tuple[Any, dict[str, np.ndarray], int]:
    """The loss of ResNet-20 with Momentum, a share of 32 images, and steps in a round."""
    loss, batches = fluid_models.resnet20(fluid)
    return loss, batches[0], 1


NETWORKS = {"mlp": mlp, "resnet20": resnet20}


class Way:
    """One way to run a network on so many devices."""

    def __init__(self, network: str, devices: int, way: str):
        self.main, startup, self.scope = fluid.Program(), fluid.Program(), fluid.Scope()
        with fluid.unique_name.guard(), fluid.program_guard(self.main, startup):
            self.loss, share, self.steps = NETWORKS[network]()
        self.executor = fluid.Executor(fluid.CPUPlace())
        self.executor.run(startup, scope=self.scope)
        self.feed = {name: np.concatenate([rows] * (1 if way == "shares" else devices)) for name, rows in share.items()}
        if way == "staged":
            self.feed = {name: rows[:-1] for name, rows in self.feed.items()}
        self.program: Any = self.main
        if way not in ("plain", "shares"):
            places = fluid.cpu_places(devices)
            self.program = fluid.CompiledProgram(self.main).with_data_parallel(self.loss.name, places=places)
            several = self.program._run_at(self.executor.place, self.scope)
            if way == "on one":
                several.write_together()
        self.best = [float("inf")] * 2
        self.run(3)

    def run(self, count: int) -> None:
        for _ in range(count):
            self.executor.run(self.program, self.feed, [self.loss], scope=self.scope)

    def measure(self) -> None:
        self.best = _better(self.best, self.run, self.steps)


class Reduction:
    """The sums of a network's gradients over so many devices."""

    def __init__(self, like: Way, devices: int):
        self._sums = Sums(jax.devices()[:devices])
        zeros = [np.zeros(p.shape, "float32") for p in like.main.all_parameters() if p.trainable]
        self._parts = [[jax.device_put(z, device) for device in jax.devices()[:devices]] for z in zeros]
        self.best = [float("inf")] * 2
        self.run(3)

    def run(self, count: int) -> None:
        for _ in range(count):
            self._sums(self._parts)

    def measure(self) -> None:
        self.best = _better(self.best, self.run, 10)


def _better(best: list[float], run: Callable[[int], None], steps: int) -> list[float]:
    """[wall, CPU] milliseconds a step, or what was better."""
    wall, cpu = time.perf_counter(), time.process_time()
    run(steps)
    taken = time.perf_counter() - wall, time.process_time() - cpu
    return [min(b, 1e3 * t / steps) for b, t in zip(best, taken, strict=True)]


def child(network: str, devices: int) -> dict[str, list[float]]:
    """[wall, CPU] milliseconds a step of each way."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    names = ("plain", "shares", "on one", "spread", "staged") if devices > 1 else ("plain", "on one", "spread")
    ways: dict[str, Any] = {name: Way(network, devices, name) for name in names}
    if devices > 1:
        ways["sums"] = Reduction(ways["plain"], devices)
    for _ in range(ROUNDS):
        for way in ways.values():
            way.measure()
    times = {name: way.best for name, way in ways.items()}
    if devices > 1:
        times["shares"] = [devices * t for t in times["shares"]]
    return times


def _line(times: dict[str, list[float]]) -> str:
    text = "; ".join(f"{name} {wall:.2f}, {cpu:.2f}" for name, (wall, cpu) in times.items())
    if "staged" not in times:
        return text
    staged, shares, sums = (times[name][1] for name in ("staged", "shares", "sums"))
    return f"{text}; staged beyond shares and sums {100 * (staged - sums) / shares - 100:.0f} %"


def main(networks: Sequence[str]) -> None:
    for network in networks:
        print(f"{network}; milliseconds a step: wall, CPU")
        for devices in (1, 2, 4, 8):
            flags = f"--xla_force_host_platform_device_count={devices}"
            told = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
            command = [sys.executable, "-m", "benchmarks.scaling", network, str(devices)]
            found = subprocess.run(command, env=told, capture_output=True, text=True, check=True).stdout
            print(f"{devices} devices: {_line(json.loads(found))}", flush=True)


if __name__ == "__main__":
    if sys.argv[2:] and sys.argv[2].isdigit():
        print(json.dumps(child(sys.argv[1], int(sys.argv[2]))))
    else:
        main(sys.argv[1:] or ["mlp"])
