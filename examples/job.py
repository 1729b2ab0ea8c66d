"""What the examples share: one training, run by whatever processes and devices there are.

The environment says what this process is, as Fluid's launchers set it: alone, on one device or several; one of several
workers; a parameter server, or a worker of some. The scripts do not tell these apart.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

import fluidjax as fluid
from fluidjax.incubate.fleet.base import role_maker
from fluidjax.incubate.fleet.collective import fleet as workers
from fluidjax.incubate.fleet.parameter_server.distribute_transpiler import StrategyFactory
from fluidjax.incubate.fleet.parameter_server.distribute_transpiler import fleet as with_servers

Batch = dict[str, np.ndarray]


def fixed(name: str, *shape: int) -> fluid.ParamAttr:
    """A parameter that starts from the same numbers in every kind of job."""
    values = np.random.RandomState(len(name)).uniform(-0.1, 0.1, shape).astype("float32")
    return fluid.ParamAttr(name=name, initializer=fluid.initializer.NumpyArrayInitializer(values))


def train(network: Callable[[], Any], optimizer: Any, batches: Iterable[Batch]) -> None:
    """Train a network, and print the loss of each batch; each worker has its share of it.

    Args:
        network: writes the layers, and returns the loss.
        optimizer: minimizes it.
        batches: all batches of the job.
    """
    loss, executor = network(), fluid.Executor(fluid.CPUPlace())
    fleet: Any = None
    if "PADDLE_PSERVERS_IP_PORT_LIST" in os.environ:
        fleet = with_servers
        fleet.init(role_maker.PaddleCloudRoleMaker())
        fleet.distributed_optimizer(optimizer, StrategyFactory.create_sync_strategy()).minimize(loss)
        if fleet.is_server():
            fleet.init_server()
            return fleet.run_server()
        fleet.init_worker()
    elif "PADDLE_TRAINER_ENDPOINTS" in os.environ:
        fleet = workers
        fleet.init(role_maker.PaddleCloudRoleMaker(is_collective=True))
        fleet.distributed_optimizer(optimizer).minimize(loss)
    else:
        optimizer.minimize(loss)
    executor.run(fluid.default_startup_program() if fleet is None else fleet.startup_program)
    main = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(loss.name)
    for number, batch in enumerate(batches):
        share = batch if fleet is None else {n: part(v, fleet) for n, v in batch.items()}
        (found,) = executor.run(main if fleet is None else fleet.main_program, share, [loss])
        print(f"batch {number}: loss {np.mean(found):.6f}", flush=True)
    if fleet is with_servers:
        fleet.stop_worker()
    return None


def part(rows: np.ndarray, fleet: Any) -> np.ndarray:
    """This worker's rows of a batch."""
    return np.array_split(rows, fleet.worker_num())[fleet.worker_index()]
