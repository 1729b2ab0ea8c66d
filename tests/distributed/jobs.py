"""Jobs of one trainer and servers, the servers in threads of this process; and the same network in one process."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import fluidjax as fluid
from fluidjax.distributed.client import client
from tests.ports import free_endpoints

WIDTH, ROWS = 8, 40


def constant(name: str, value: float) -> fluid.ParamAttr:
    """A parameter of that name that begins with a value."""
    return fluid.ParamAttr(name=name, initializer=fluid.initializer.Constant(value))


def dense() -> fluid.Variable:
    """A small network of dense parameters."""
    x, y = fluid.data("x", [None, WIDTH], "float32"), fluid.data("y", [None, 1], "float32")
    hidden = fluid.layers.fc(x, WIDTH, act="tanh", param_attr=constant("w0", 0.1), bias_attr=constant("b0", 0.0))
    out = fluid.layers.fc(hidden, 1, param_attr=constant("w1", 0.2), bias_attr=constant("b1", 0.0))
    return fluid.layers.mean(fluid.layers.square_error_cost(out, y))


def sparse(is_distributed: bool = False) -> fluid.Variable:
    """A small network with a table whose gradient is sparse."""
    ids, y = fluid.data("ids", [None, 1], "int64"), fluid.data("y", [None, 1], "float32")
    rows = fluid.layers.embedding(
        ids, [ROWS, WIDTH], is_sparse=True, is_distributed=is_distributed, param_attr=constant("table", 0.3)
    )
    out = fluid.layers.fc(rows, 1, param_attr=constant("w1", 0.2), bias_attr=constant("b1", 0.0))
    return fluid.layers.mean(fluid.layers.square_error_cost(out, y))


def batch(step: int) -> dict[str, np.ndarray]:
    """What both networks are fed in a step."""
    rng = np.random.RandomState(step)
    x = rng.uniform(-1, 1, (6, WIDTH)).astype("float32")
    ids = rng.randint(0, ROWS, (6, 1)).astype("int64")
    return {"x": x, "ids": ids, "y": x[:, :1] + ids.astype("float32") / ROWS}


def feed(program: fluid.Program, step: int) -> dict[str, np.ndarray]:
    """The part of a batch that a program takes."""
    return {name: value for name, value in batch(step).items() if program.global_block().has_var(name)}


@dataclass
class Job:
    """A job of one trainer.

    Attributes:
        network: makes the loss.
        optimizer: makes the optimizer.
        servers: how many.
        config: of the transpiler.
        sync: its mode.
        load: the folder that servers load from before they serve.
    """

    network: Callable[[], fluid.Variable] = dense
    optimizer: Callable[[], Any] = lambda: fluid.optimizer.SGD(0.1)
    servers: int = 2
    config: dict[str, Any] = field(default_factory=dict)
    sync: bool = True
    min_block_size: int = 16
    load: str = ""

    def __post_init__(self) -> None:
        self.endpoints = free_endpoints(self.servers)
        self.scopes = {endpoint: fluid.Scope() for endpoint in self.endpoints}
        self.errors: dict[str, BaseException] = {}

    def _programs(self, endpoint: str = "") -> tuple[fluid.Program, fluid.Program, fluid.Variable, Any]:
        main, startup = fluid.Program(), fluid.Program()
        with fluid.unique_name.guard(), fluid.program_guard(main, startup):
            loss = self.network()
            self.optimizer().minimize(loss)
            config = fluid.DistributeTranspilerConfig()
            for name, value in self.config.items():
                setattr(config, name, value)
            transpiler = fluid.DistributeTranspiler(config=config)
            config.min_block_size = self.min_block_size  # only its constructor insists on 8192
            transpiler.transpile(
                0, main, ",".join(self.endpoints), 1, self.sync, startup, endpoint or self.endpoints[0]
            )
        return main, startup, loss, transpiler

    def server_programs(self, endpoint: str) -> tuple[fluid.Program, fluid.Program]:
        """(main, startup) of a server."""
        return self._programs(endpoint)[3].get_pserver_programs(endpoint)

    def _begin(self, endpoint: str, main: fluid.Program, startup: fluid.Program) -> None:
        with fluid.scope_guard(self.scopes[endpoint]):
            exe = fluid.Executor(fluid.CPUPlace())
            exe.run(startup)
            if self.load:
                fluid.io.load_persistables(exe, self.load, main)

    def serve(self, endpoint: str, main: fluid.Program) -> None:
        """Run a server's program."""
        exe, scope = fluid.Executor(fluid.CPUPlace()), self.scopes[endpoint]
        try:
            exe.run(main, scope=scope)
        except BaseException as error:
            self.errors[endpoint] = error

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Within it all servers run; after it they have ended."""
        # What the default program is, all threads share.
        programs = {endpoint: self.server_programs(endpoint) for endpoint in self.endpoints}
        for endpoint, (main, startup) in programs.items():
            self._begin(endpoint, main, startup)
        threads = [threading.Thread(target=self.serve, args=(e, p[0]), daemon=True) for e, p in programs.items()]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            client.complete()
            client.leave()
            for thread in threads:
                thread.join(120)
            assert not any(thread.is_alive() for thread in threads)

    def trainer(self) -> tuple[fluid.Program, fluid.Program, fluid.Variable]:
        """(main, startup, loss) of the trainer."""
        _, startup, loss, transpiler = self._programs()
        return transpiler.get_trainer_program(), startup, loss

    def train(
        self, steps: int = 4, each: Callable[[int, Any, fluid.Program], Any] | None = None, first: int = 0
    ) -> list[float]:
        """The losses of some steps, of which the ``first`` has that number."""
        main, startup, loss = self.trainer()
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        losses = []
        for step in range(first, first + steps):
            (value,) = exe.run(main, feed=feed(main, step), fetch_list=[loss.name])
            losses.append(float(value[0]))
            if each is not None:
                each(step, exe, main)
        exe.close()
        return losses

    def alone(self, steps: int = 4) -> list[float]:
        """The losses of the network in one process."""
        main, startup = fluid.Program(), fluid.Program()
        with fluid.unique_name.guard(), fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
            loss = self.network()
            self.optimizer().minimize(loss)
            exe = fluid.Executor(fluid.CPUPlace())
            exe.run(startup)
            return [float(exe.run(main, feed=feed(main, step), fetch_list=[loss])[0][0]) for step in range(steps)]
