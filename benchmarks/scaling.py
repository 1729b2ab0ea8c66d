"""``python -m benchmarks.scaling``: steps on 1, 2, 4 and 8 devices of a host, the work of each being the same.

For each number of devices a process of its own runs three ways in turn: the plain step over the whole batch; the step
spread over physical devices; all devices written out for one. Times are the best of several rounds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

import numpy as np

import fluidjax as fluid
from fluidjax import layers

ROWS, ROUNDS, STEPS = 128, 15, 10


def network() -> Any:
    x, y = fluid.data("x", [None, 256], "float32"), fluid.data("y", [None, 1], "int64")
    hidden = layers.fc(layers.fc(x, 256, act="relu"), 256, act="relu")
    loss = layers.mean(layers.softmax_with_cross_entropy(layers.fc(hidden, 10), y))
    fluid.optimizer.Momentum(0.01, 0.9).minimize(loss)
    return loss


class Way:
    """One way to run the network on so many devices."""

    def __init__(self, devices: int, *, compiled: bool, spread: bool):
        self.main, startup, self.scope = fluid.Program(), fluid.Program(), fluid.Scope()
        with fluid.unique_name.guard(), fluid.program_guard(self.main, startup):
            self.loss = network()
        self.executor = fluid.Executor(fluid.CPUPlace())
        self.executor.run(startup, scope=self.scope)
        draw = np.random.RandomState(0)
        rows = ROWS * devices
        self.feed = {"x": draw.rand(rows, 256).astype("float32"), "y": draw.randint(0, 10, (rows, 1))}
        self.program: Any = self.main
        if compiled:
            places = fluid.cpu_places(devices)
            self.program = fluid.CompiledProgram(self.main).with_data_parallel(self.loss.name, places=places)
            several = self.program._run_at(self.executor.place, self.scope)
            if not spread:
                several.write_together()
        self.best = [float("inf")] * 2
        self.run(3)

    def run(self, count: int) -> None:
        for _ in range(count):
            self.executor.run(self.program, self.feed, [self.loss], scope=self.scope)

    def measure(self) -> None:
        wall, cpu = time.perf_counter(), time.process_time()
        self.run(STEPS)
        taken = time.perf_counter() - wall, time.process_time() - cpu
        self.best = [min(b, 1e3 * t / STEPS) for b, t in zip(self.best, taken, strict=True)]


def child(devices: int) -> dict[str, list[float]]:
    """[wall, CPU] milliseconds a step of each way."""
    ways = {"plain": Way(devices, compiled=False, spread=False), "on one": Way(devices, compiled=True, spread=False)}
    ways["spread"] = Way(devices, compiled=True, spread=True)
    for _ in range(ROUNDS):
        for way in ways.values():
            way.measure()
    return {name: way.best for name, way in ways.items()}


def main() -> None:
    print(f"MLP 256-256-256-10, {ROWS} rows a device; milliseconds a step: wall, CPU")
    for devices in (1, 2, 4, 8):
        told = {**os.environ, "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}", "JAX_PLATFORMS": "cpu"}
        command = [sys.executable, "-m", "benchmarks.scaling", str(devices)]
        found = json.loads(subprocess.run(command, env=told, capture_output=True, text=True, check=True).stdout)
        print(f"{devices} devices: " + "; ".join(f"{n} {wall:.2f}, {cpu:.2f}" for n, (wall, cpu) in found.items()))


if __name__ == "__main__":
    print(json.dumps(child(int(sys.argv[1])))) if len(sys.argv) > 1 else main()
