"""One of two processes that train together; test_processes starts them. It prints what it found as JSON."""

from __future__ import annotations

import json
import os
import socket
import sys
from typing import Any

import numpy as np

import fluidjax as fluid
from fluidjax import layers
from fluidjax.incubate.fleet.base import role_maker
from fluidjax.incubate.fleet.collective import DistributedStrategy, fleet
from tests.parallel.nets import looked_up

RANK, ENDPOINTS = int(os.environ["PADDLE_TRAINER_ID"]), os.environ["PADDLE_TRAINER_ENDPOINTS"]
SIZES = (6, 4)  # the batches of the two processes


def batch(step: int, rank: int) -> dict[str, np.ndarray]:
    x = np.random.RandomState(10 * step + rank).uniform(-1, 1, (SIZES[rank], 3)).astype("float32")
    return {"x": x, "y": x[:, :1] * 2}


def fixed(name: str, shape: list[int], rank: int = 0) -> fluid.ParamAttr:
    value = np.linspace(-1, 1, int(np.prod(shape))).reshape(shape).astype("float32") + np.float32(rank)
    return fluid.ParamAttr(name, initializer=fluid.initializer.NumpyArrayInitializer(value))


def network(rank: int) -> Any:
    loss = unoptimized(rank)
    fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    return loss


def unoptimized(rank: int) -> Any:
    x, y = fluid.data("x", [None, 3], "float32"), fluid.data("y", [None, 1], "float32")
    out = layers.fc(x, 1, param_attr=fixed("w", [3, 1], rank), bias_attr=fixed("b", [1], rank))
    return layers.mean(layers.square_error_cost(out, y))


def in_fleet(mode: str) -> list[float]:
    loss, strategy = unoptimized(RANK), DistributedStrategy()
    if mode != "fleet_nccl2":
        strategy.mode, strategy.collective_mode = "collective", "grad_allreduce"
    fleet.init(role_maker.PaddleCloudRoleMaker(is_collective=True))
    fleet.distributed_optimizer(fluid.optimizer.Momentum(0.1, 0.9), strategy).minimize(loss)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fleet.startup_program)
    return [executor.run(fleet.main_program, batch(step, RANK), [loss])[0].item() for step in range(4)]


def transpiled(mode: str) -> list[float]:
    loss = network(RANK)
    config = fluid.DistributeTranspilerConfig()
    config.mode, config.collective_mode = mode, "grad_allreduce"
    executor, own = fluid.Executor(fluid.CPUPlace()), ENDPOINTS.split(",")[RANK]
    fluid.DistributeTranspiler(config).transpile(RANK, trainers=ENDPOINTS, current_endpoint=own)
    executor.run(fluid.default_startup_program())
    program: Any = fluid.default_main_program()
    if mode == "nccl2":
        program = fluid.CompiledProgram(program).with_data_parallel(loss.name)
    return [executor.run(program, batch(step, RANK), [loss])[0].item() for step in range(4)]


def sparse() -> list[float]:
    ids, y = fluid.data("ids", [None, 1], "int64"), fluid.data("y", [None, 1], "float32")
    rows = layers.embedding(ids, [40, 1], is_sparse=True, param_attr=fixed("table", [40, 1], RANK))
    loss = layers.mean(layers.square_error_cost(layers.reshape(rows, [-1, 1]), y))
    fleet.init(role_maker.PaddleCloudRoleMaker(is_collective=True))
    fleet.distributed_optimizer(fluid.optimizer.SGD(0.5), DistributedStrategy()).minimize(loss)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fleet.startup_program)
    return [executor.run(fleet.main_program, looked_up(step, RANK), [loss])[0].item() for step in range(5)]


def eager() -> list[float]:
    context = fluid.dygraph.parallel.prepare_context()
    losses = []
    with fluid.dygraph.guard():
        layer = fluid.dygraph.Linear(3, 1, param_attr=fixed("w", [3, 1]), bias_attr=fixed("b", [1]))
        model = fluid.dygraph.parallel.DataParallel(layer, context)
        momentum = fluid.optimizer.Momentum(0.1, 0.9, parameter_list=model.parameters())
        for step in range(4):
            x, y = map(fluid.dygraph.to_variable, batch(step, RANK).values())
            loss = layers.mean(layers.square_error_cost(model(x), y))
            losses.append(loss.numpy().item())
            model.scale_loss(loss).backward()
            model.apply_collective_grads()
            momentum.minimize(loss)
            model.clear_gradients()
    return losses


def collectives() -> dict[str, list[Any]]:
    """What each collective op makes of this process's numbers, and a sum inside a branch and a loop."""
    transpiled("collective")
    x = {"x": numbers(RANK)}
    own = {op: [("c_identity", {}), (op, attrs)] for op, attrs in COLLECTIVES.items()}
    found = {op: fluid.Executor(fluid.CPUPlace()).run(written(*ops), x, [f"{op}_out"])[0] for op, ops in own.items()}
    return {op: value.tolist() for op, value in found.items()} | {"nested": nested(x).tolist()}


COLLECTIVES: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("c_allreduce_sum", "c_allreduce_max", "c_allreduce_min", "c_allreduce_prod"), {}),
    **dict.fromkeys(("c_allgather", "c_reducescatter"), {"nranks": 2}),
    **dict.fromkeys(("c_concat", "c_split"), {"nranks": 2, "rank": RANK}),
    **dict.fromkeys(("c_broadcast", "broadcast"), {"root": 1}),
    "allreduce": {"reduce_type": 2},
    "mp_allreduce_sum": {},
}


def numbers(rank: int) -> np.ndarray:
    return np.arange(8, dtype=np.float32).reshape(2, 4) * (1 - 3 * rank) + 1


def written(*ops: tuple[str, dict[str, Any]]) -> fluid.Program:
    program = fluid.Program()
    with fluid.program_guard(program):
        name = fluid.data("x", [2, 4]).name
        for op, attrs in ops:
            out = program.global_block().create_var(name=f"{op}_out", dtype="float32")
            program.global_block().append_op(op, inputs={"X": name}, outputs={"Out": out}, attrs=attrs)
            name = out.name
    return program


def nested(feed: dict[str, np.ndarray]) -> Any:
    def summed(x: Any) -> Any:
        block = fluid.default_main_program().current_block()
        out = block.create_var(name=fluid.unique_name.generate("sum"), dtype="float32")
        block.append_op("c_allreduce_sum", inputs={"X": x}, outputs={"Out": out})
        return out

    with fluid.program_guard(fluid.Program()):
        x, yes = fluid.data("x", [2, 4]), layers.fill_constant([1], "bool", True)
        i, two = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 2)
        x = layers.cond(yes, lambda: summed(x), lambda: x)
        _, x = layers.while_loop(lambda i, x: i < two, lambda i, x: [i + 1, summed(x)], [i, x])
        return fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[x])[0]


def reached() -> list[bool]:
    """Whether the first process answers at its own address, and at another one of this machine."""
    transpiled("collective")
    port = int(ENDPOINTS.split(",")[0].rpartition(":")[2])
    return [answers("127.0.0.1", port), answers("127.0.0.2", port)]


def answers(host: str, port: int) -> bool:
    with socket.socket() as tried:
        tried.settimeout(5)
        return tried.connect_ex((host, port)) == 0


if __name__ == "__main__":
    mode = sys.argv[1]
    known = {"eager": eager, "sparse": sparse, "reached": reached, "collectives": collectives}
    found = known[mode]() if mode in known else in_fleet(mode) if "fleet" in mode else transpiled(mode)
    print(json.dumps(found) + " " * 100_000)  # more than a pipe holds: one of them waits until it is read
