"""Processes that train together, against the same arithmetic in one."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest

from fluidjax.execution.devices import coordinator, processes
from tests.parallel.nets import looked_up
from tests.ports import free_ports


def environment(rank: int, ports: list[int], **more: str) -> dict[str, str]:
    endpoints = [f"127.0.0.1:{port}" for port in ports]
    roles = {"PADDLE_TRAINER_ID": str(rank), "PADDLE_TRAINERS_NUM": str(len(ports))}
    roles |= {"PADDLE_TRAINER_ENDPOINTS": ",".join(endpoints), "PADDLE_CURRENT_ENDPOINT": endpoints[rank]}
    return {**os.environ, **roles, "JAX_PLATFORMS": "cpu", **more}


def together(*arguments: str) -> list[Any]:
    """What each of two processes prints: that alone, read from the first one to its end and then from the second."""
    ports = free_ports(2)
    command = [sys.executable, "-W", "error", "-m", "tests.parallel.trainer", *arguments]
    started = [
        subprocess.Popen(command, env=environment(r, ports), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for r in range(2)
    ]
    try:
        outputs = [p.communicate(timeout=900) for p in started]
    finally:
        for p in started:
            p.kill()
            p.wait()
    assert [p.returncode for p in started] == [0, 0], "\n".join(err for _, err in outputs)
    assert left(ports[0])
    return [json.loads(out) for out, _ in outputs]


def expected() -> list[list[float]]:
    """The losses of both: each has its own batch, and each counts half, whatever its size."""
    sizes, losses = (6, 4), [list[float](), list[float]()]
    w, b = np.linspace(-1, 1, 3).reshape(3, 1).astype("float32"), np.array([-1], "float32")
    speed_w, speed_b = np.zeros_like(w), np.zeros_like(b)
    for step in range(4):
        grad_w, grad_b = np.zeros_like(w), np.zeros_like(b)
        for rank, rows in enumerate(sizes):
            x = np.random.RandomState(10 * step + rank).uniform(-1, 1, (rows, 3)).astype("float32")
            error = x @ w + b - x[:, :1] * 2
            losses[rank].append(float((error**2).mean()))
            grad_w, grad_b = grad_w + x.T @ error / rows, grad_b + error.sum(0) / rows
        speed_w, speed_b = 0.9 * speed_w + grad_w, 0.9 * speed_b + grad_b
        w, b = w - 0.1 * speed_w, b - 0.1 * speed_b
    return losses


@pytest.mark.parametrize("mode", ["collective", "nccl2", "eager"])
def test_two_processes_train_as_one(mode: str) -> None:
    """Batches of 6 and of 4; the second process starts from other values than the first, which count."""
    np.testing.assert_allclose(together(mode), expected(), rtol=1e-5)


def test_sparse_gradients_of_two_processes_may_differ_in_rows() -> None:
    table, losses = np.linspace(-1, 1, 40).astype("float32"), [list[float](), list[float]()]
    for step in range(5):
        gradient = np.zeros_like(table)
        for rank in range(2):
            fed = looked_up(step, rank)
            ids, error = fed["ids"][:, 0], table[fed["ids"][:, 0]] - fed["y"][:, 0]
            losses[rank].append(float((error**2).mean()))
            np.add.at(gradient, ids, 2 * error / len(ids) / 2)
        table -= 0.5 * gradient
    np.testing.assert_allclose(together("sparse"), losses, rtol=1e-5)


def test_collective_ops_of_two_processes() -> None:
    first, second = numbers(0), numbers(1)
    total = first + second
    expected = {
        **dict.fromkeys(("c_allreduce_sum", "mp_allreduce_sum"), [total] * 2),
        **dict.fromkeys(("c_allreduce_max", "allreduce"), [np.maximum(first, second)] * 2),
        "c_allreduce_min": [np.minimum(first, second)] * 2,
        "c_allreduce_prod": [first * second] * 2,
        **dict.fromkeys(("c_broadcast", "broadcast"), [second] * 2),
        "c_allgather": [np.concatenate([first, second])] * 2,
        "c_concat": [np.concatenate([first, second], 1)] * 2,
        "c_reducescatter": [total[:1], total[1:]],
        "c_split": [first[:, :2], second[:, 2:]],
        "nested": [4 * total] * 2,
    }
    found = together("collectives")
    assert found == [{op: values[rank].tolist() for op, values in expected.items()} for rank in range(2)]


def numbers(rank: int) -> np.ndarray:
    return np.arange(8, dtype=np.float32).reshape(2, 4) * (1 - 3 * rank) + 1


def test_the_first_process_listens_at_its_own_address_alone() -> None:
    assert together("reached") == [[True, False]] * 2


def test_who_coordinates_ends_with_the_first_process() -> None:
    (port,) = free_ports(1)
    held = coordinator.start(f"127.0.0.1:{port}", 2, 10)
    with pytest.raises(RuntimeError, match="in use"):
        coordinator.start(f"127.0.0.1:{port}", 2, 10)
    os.close(held)
    assert left(port)


def left(port: int) -> bool:
    """Whether soon nobody holds it."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            socket.create_server(("127.0.0.1", port)).close()
            return True
        time.sleep(0.02)
    return False


def test_alone_there_is_nobody_to_meet() -> None:
    assert processes.join(["127.0.0.1:1"], 0) is None
    assert processes.processes() is None
