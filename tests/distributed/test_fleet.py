"""Fleet's parameter-server mode: roles, strategies, and a job of one worker."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.distributed.client import client
from fluidjax.incubate.fleet.base.role_maker import GeneralRoleMaker, PaddleCloudRoleMaker, Role, UserDefinedRoleMaker
from fluidjax.incubate.fleet.parameter_server import distribute_transpiler as module
from fluidjax.incubate.fleet.parameter_server.distribute_transpiler import DistributedTranspiler, StrategyFactory
from fluidjax.transpiler.config import DistributedMode
from tests.distributed.jobs import Job, dense, feed, sparse
from tests.ports import free_endpoints

SERVERS = "127.0.0.1:6170,127.0.0.1:6171"


def test_roles_that_launchers_tell(monkeypatch):
    monkeypatch.setenv("PADDLE_PSERVERS_IP_PORT_LIST", SERVERS)
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "3")
    monkeypatch.setenv("TRAINING_ROLE", "TRAINER")
    monkeypatch.setenv("PADDLE_TRAINER_ID", "2")
    worker = PaddleCloudRoleMaker()
    assert worker.is_worker() and not worker.is_server() and not worker.is_first_worker()
    assert (worker.worker_index(), worker.worker_num(), worker.get_pserver_endpoints()) == (2, 3, SERVERS.split(","))
    monkeypatch.setenv("TRAINING_ROLE", "PSERVER")
    monkeypatch.setenv("POD_IP", "127.0.0.1")
    monkeypatch.setenv("PADDLE_PORT", "6171")
    server = PaddleCloudRoleMaker()
    assert server.is_server() and server.server_index() == 1
    monkeypatch.setenv("PADDLE_TRAINER_ENDPOINTS", "127.0.0.1:1,127.0.0.1:2")
    general = GeneralRoleMaker()
    assert (general.server_index(), general.worker_num(), general.server_num()) == (1, 2, 2)
    assert general.get_local_endpoint() == "127.0.0.1:6171"
    workers = PaddleCloudRoleMaker(is_collective=True)
    assert workers.is_worker() and workers.worker_num() == 2


@pytest.mark.parametrize(
    "name, value", [("TRAINING_ROLE", "BOSS"), ("PADDLE_PORT", "1"), ("PADDLE_TRAINERS_NUM", None)]
)
def test_an_environment_without_a_role_says_what_is_wrong(monkeypatch, name, value):
    known = {
        "PADDLE_PSERVERS_IP_PORT_LIST": SERVERS, "PADDLE_TRAINERS_NUM": "3", "TRAINING_ROLE": "PSERVER",
        "POD_IP": "127.0.0.1", "PADDLE_PORT": "6171", name: value,
    }  # fmt: skip
    for key, text in known.items():
        monkeypatch.delenv(key, raising=False) if text is None else monkeypatch.setenv(key, text)
    with pytest.raises(ValueError, match=rf"(?s)check environment: .*{name}.*expected.*received.*what to do"):
        PaddleCloudRoleMaker().generate_role()


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({"server_endpoints": "a:1"}, TypeError, "string list"),
        ({"server_endpoints": []}, ValueError, "greater than 0"),
        ({"server_endpoints": ["a:1", "a:1"]}, ValueError, "duplicate"),
        ({"server_endpoints": [1]}, TypeError, "as string"),
        ({"role": 3}, TypeError, "as Role"),
        ({"current_id": -1}, ValueError, "greater than or equal to 0"),
        ({"current_id": 1, "role": Role.SERVER}, ValueError, "less than or equal"),
        ({"worker_num": 0}, ValueError, "greater than 0"),
    ],
)
def test_roles_that_cannot_be(arguments, error, message):
    with pytest.raises(error, match=message):
        UserDefinedRoleMaker(**({"worker_num": 1, "server_endpoints": ["a:1"]} | arguments))


def test_strategies(monkeypatch):
    monkeypatch.setenv("CPU_NUM", "1")
    sync, geo = StrategyFactory.create_sync_strategy(), StrategyFactory.create_geo_strategy(7)
    config = sync.get_program_config()
    assert (config.sync_mode, config.runtime_split_send_recv, config.completely_not_async) == (False, True, True)
    assert sync.get_trainer_runtime_config().mode == DistributedMode.SYNC
    assert geo.get_program_config().geo_sgd_need_push_nums == 7 and geo.get_program_config().geo_sgd_mode
    assert sync.get_execute_strategy().use_thread_barrier and sync.get_build_strategy().async_mode
    sync.set_trainer_runtime_config({"communicator_send_queue_size": "4"})
    assert sync.get_trainer_runtime_config().get_communicator_flags()["communicator_send_queue_size"] == "1"
    with pytest.raises(ValueError, match="doesn't have key"):
        geo.set_program_config({"nothing": 1})
    with pytest.raises(TypeError, match="only accept"):
        geo.set_build_strategy(3)


@pytest.mark.parametrize(
    ("strategy", "network"),
    [("sync", dense), ("half_async", dense), ("async", dense), ("geo", sparse), ("geo", dense)],
)
@pytest.mark.parametrize("falls", [False, True])
def test_a_job_of_one_worker(monkeypatch, tmp_path, strategy, network, falls):
    """In every mode but async, one worker that exchanges each step trains as one process does.

    A rate that falls does so in async and geo mode; in the others servers keep the one it begins with, as in Fluid.
    """
    endpoints, scope, error = free_endpoints(1), fluid.Scope(), []

    def begin(role: int) -> tuple[DistributedTranspiler, fluid.Variable]:
        own = DistributedTranspiler()
        monkeypatch.setattr(module, "fleet", own)
        own.init(UserDefinedRoleMaker(0, role, 1, endpoints))
        main, startup = fluid.Program(), fluid.Program()
        with fluid.unique_name.guard(), fluid.program_guard(main, startup):
            loss = network()
            made = getattr(StrategyFactory, f"create_{strategy}_strategy")(*([1] if strategy == "geo" else []))
            rate = fluid.layers.exponential_decay(0.1, 2, 0.5) if falls else 0.1
            own.distributed_optimizer(fluid.optimizer.SGD(rate), made).minimize(loss)
        return own, loss

    server, _ = begin(Role.SERVER)

    def serve() -> None:
        try:
            exe = fluid.Executor(fluid.CPUPlace())
            exe.run(server.startup_program, scope=scope)
            exe.run(server.main_program, scope=scope)
        except BaseException as failure:
            error.append(failure)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    worker, loss = begin(Role.WORKER)
    worker.init_worker()
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(worker.startup_program)
    program = worker.main_program
    losses = [float(exe.run(program, feed=feed(program, i), fetch_list=[loss.name])[0][0]) for i in range(6)]
    worker.save_persistables(exe, str(tmp_path))
    worker.stop_worker()
    client.leave()
    thread.join(120)
    assert not thread.is_alive() and not error
    assert (tmp_path / "w1").exists()
    if strategy == "geo":  # the last step went to the server, too
        np.testing.assert_array_equal(*(np.array(s.find_var("w1").get_tensor()) for s in (scope, fluid.global_scope())))
    if strategy == "async" or (strategy == "geo" and falls):
        assert losses[-1] < losses[0]
    else:
        rate = 0.1 * 0.5**0.5 if falls else 0.1
        np.testing.assert_allclose(losses, Job(network, lambda: fluid.optimizer.SGD(rate)).alone(6), rtol=1e-5)
