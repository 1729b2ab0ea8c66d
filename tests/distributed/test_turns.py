"""Requests are served in the threads that bring them: one at a time, with the settings and the scope of the run."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.distributed.asynchronous import Asynchronous
from fluidjax.distributed.client import Server, client
from fluidjax.distributed.requests import Request
from fluidjax.distributed.traffic import Traffic
from fluidjax.distributed.wire import Message
from lowering.engine.thread import settings_of_thread
from tests.distributed.jobs import Job


def test_threads_take_over_the_settings_of_another() -> None:
    def found() -> tuple:
        return jax.enable_x64.value, jax.config.jax_default_matmul_precision, jax.config.jax_default_device

    device = jax.devices()[0]
    with jax.enable_x64(True), jax.default_matmul_precision("float32"), jax.default_device(device):
        here, take_over = found(), settings_of_thread()
    assert here == (True, "float32", device)
    with ThreadPoolExecutor(1, initializer=take_over) as threads:
        assert threads.submit(found).result() == here
    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(found).result() == found() != here


def test_a_gradient_is_answered_first_and_applied_before_anybody_else_is_served() -> None:
    applied: list = []
    shard = SimpleNamespace(
        blocks={"w@GRAD": 1}, check_sent=list, tables={}, decay=-1, compensates=False,
        update=lambda name, given: applied.append(given[name]), values=lambda names: [np.int32(len(applied))],
    )  # fmt: skip
    serving = Asynchronous(shard, 2)

    def push() -> Request:
        pushed = Request("SendVariable", Message([("w@GRAD", np.float32([1]))], 0))
        serving.handle(pushed)
        return pushed

    for number in (1, 2):
        assert push().answer.done() and len(applied) == number - 1
        asked = Request("GetVariable", Message([("w", None)], 1))
        serving.handle(asked)
        assert asked.answer.result(0).items == [("w", number)]
    push()
    serving.settle()
    assert len(applied) == 3 and not serving.owed


def test_threads_that_ask_at_once_attend_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two calls the server took the end of the one for the end of the trainer."""
    server, made = Server("127.0.0.1:1", Traffic()), []

    def called(parts: Any, **settled: Any) -> Any:
        made.append(parts)
        time.sleep(0.05)  # long enough for the other threads to ask
        return SimpleNamespace(is_active=lambda: True, cancel=lambda: None)

    monkeypatch.setattr(server, "_stub", lambda method, kind: called)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(server.attend, [0] * 4))
    server.leave()
    assert len(made) == 1


def test_gradients_of_many_threads_are_all_applied() -> None:
    """SGD adds -0.1 times each; two at once would lose some."""
    job = Job(servers=1, config={"sync_mode": False}, sync=False)
    (endpoint,) = job.endpoints
    with job.running(), ThreadPoolExecutor(4) as threads:
        sent = [(endpoint, "b0@GRAD", np.full(8, number, "float32")) for number in range(40)]
        list(threads.map(lambda item: client.ask("SendVariable", [item]), sent))
        (value,) = client.ask("GetVariable", [(endpoint, "b0", None)])
    np.testing.assert_allclose(value, np.full(8, -0.1 * sum(range(40))), rtol=1e-5)
    assert not job.errors


def test_programs_may_run_in_the_scope_that_is_served() -> None:
    """They waited for the end of the server."""
    job, looking = Job(servers=1, config={"sync_mode": False}, sync=False), fluid.Program()
    (endpoint,) = job.endpoints
    with fluid.program_guard(looking):
        held = looking.global_block().create_var(name="b0", shape=[8], dtype="float32", persistable=True)
        doubled = fluid.layers.scale(held, 2.0)
    with job.running():
        client.ask("SendVariable", [(endpoint, "b0@GRAD", np.full(8, 5, "float32"))])
        client.ask("GetVariable", [(endpoint, "b0", None)])  # is answered after the update
        found: list = []
        run = fluid.Executor(fluid.CPUPlace()).run
        thread = threading.Thread(
            target=lambda: found.extend(run(looking, fetch_list=[doubled], scope=job.scopes[endpoint])), daemon=True
        )
        thread.start()
        thread.join(240)
        assert not thread.is_alive()
    np.testing.assert_allclose(found[0], np.full(8, -1.0), rtol=1e-6)
