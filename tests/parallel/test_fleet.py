"""Fleet whose workers exchange gradients among themselves."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.incubate.fleet.base import role_maker
from fluidjax.incubate.fleet.collective import CollectiveOptimizer, DistributedStrategy, TrainStatus, fleet
from fluidjax.paddle.distributed.fs_wrapper import LocalFS
from tests.parallel.nets import mlp_network
from tests.parallel.test_processes import expected, together


@pytest.fixture
def alone() -> Any:
    """A fleet of one worker, and what it trains."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        fleet.init(role_maker.UserDefinedCollectiveRoleMaker(0, ["127.0.0.1:6170"]))
        loss, feed = mlp_network()
        yield loss, feed


@pytest.mark.parametrize("mode", ["fleet_nccl2", "fleet_grad_allreduce"])
def test_two_workers_train_as_one(mode: str) -> None:
    np.testing.assert_allclose(together(mode), expected(), rtol=1e-5)


def test_one_worker_trains_on_its_own(alone: Any, tmp_path: Path) -> None:
    loss, feed = alone
    fleet.distributed_optimizer(fluid.optimizer.SGD(0.5)).minimize(loss)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fleet.startup_program)
    losses = [executor.run(fleet.main_program, feed(0), [loss])[0].item() for _ in range(3)]
    assert losses[2] < losses[0] and isinstance(fleet.main_program, fluid.CompiledProgram)
    for epoch in range(3):
        fleet.save_check_point(executor, str(tmp_path), TrainStatus(epoch))
    assert fleet._get_last_checkpoint_no(str(tmp_path), fs=LocalFS()) == 2
    files = tmp_path / "__paddle_fleet_checkpoint__.2"
    assert fleet._load_train_status(str(files)) == TrainStatus(2)
    assert sorted(os.listdir(files)) == ["_paddle_fleet_param__", "fleet_train_status"]
    assert (files / "fleet_train_status").read_text() == '{"epoch_no": 2}'
    weight = fluid.global_scope().find_var("w0").get_tensor()
    trained = np.array(weight)
    weight.set(np.zeros_like(trained), fluid.CPUPlace())
    found = fleet.load_check_point(executor, str(tmp_path), 0)
    assert found == TrainStatus(2) and found.next() == 3
    np.testing.assert_array_equal(np.array(fluid.global_scope().find_var("w0").get_tensor()), trained)
    fleet.clean_redundant_check_points(str(tmp_path))
    assert os.listdir(tmp_path) == ["__paddle_fleet_checkpoint__.2"]


def test_an_empty_folder_has_no_checkpoint(alone: Any, tmp_path: Path) -> None:
    fleet.distributed_optimizer(fluid.optimizer.SGD(0.5)).minimize(alone[0])
    executor = fluid.Executor(fluid.CPUPlace())
    assert fleet.load_check_point(executor, str(tmp_path / "none"), 0) is None
    assert fleet._get_last_checkpoint_no(str(tmp_path), LocalFS()) == -1
    with pytest.raises(AssertionError, match="Can't find checkpoint"):
        fleet.load_check_point(executor, str(tmp_path), 0, ignore_empty=False)


def test_settings_that_contradict_each_other(alone: Any) -> None:
    with pytest.raises(ValueError, match="can not use SGD when you set DistStrategy.use_amp as True"):
        CollectiveOptimizer(fluid.optimizer.SGD(0.1)).raiseOptimizeError("use_amp", "SGD")
    strategy = DistributedStrategy()
    strategy.forward_recompute = True
    optimizer = CollectiveOptimizer(fluid.optimizer.SGD(0.1), strategy)
    for _ in range(2):
        with pytest.raises(ValueError, match="please set strategy.recompute_checkpoints"):
            optimizer.minimize(None)  # a loss is not asked for its program yet
        strategy.recompute_checkpoints = ["later"]  # than the optimizer was made, which looks at it then alone
    strategy = DistributedStrategy()
    strategy.collective_mode = "local_sgd"
    with pytest.raises(AssertionError, match="under collective mode"):
        CollectiveOptimizer(fluid.optimizer.SGD(0.1), strategy).minimize(alone[0])
    with pytest.raises(AssertionError, match="DistributedStrategy"):
        CollectiveOptimizer(fluid.optimizer.SGD(0.1), fluid.BuildStrategy())


def test_an_optimizer_is_wrapped_as_its_strategy_said_when_it_was_made(alone: Any) -> None:
    strategy = DistributedStrategy()
    optimizer = fleet.distributed_optimizer(fluid.optimizer.SGD(0.1), strategy)
    strategy.use_amp = True
    optimizer.minimize(alone[0])
    assert "cast" not in [op.type for op in alone[0].block.program.global_block().ops]


@pytest.mark.parametrize(
    ("hosts", "settings", "rings", "staged", "threads"),
    [
        (1, {"nccl_comm_num": 3}, 1, False, 2),
        (1, {"use_hierarchical_allreduce": True, "hierarchical_allreduce_inter_nranks": 2}, 1, False, 2),
        (2, {"nccl_comm_num": 3}, 3, False, 4),
        (2, {"use_hierarchical_allreduce": True, "hierarchical_allreduce_inter_nranks": 2}, 1, True, 3),
        (2, {"nccl_comm_num": 3, "sync_batch_norm": True}, 1, False, 1),
    ],
)
def test_what_rings_there_are(hosts: int, settings: dict[str, Any], rings: int, staged: bool, threads: int) -> None:
    """As in Paddle 1.8.5: one ring on one host, and where batch norm is synchronous."""
    endpoints = [f"10.0.0.{host}:617{number}" for host in range(hosts) for number in range(4 // hosts)]
    strategy, main = DistributedStrategy(), fluid.Program()
    for name, value in settings.items():
        setattr(strategy, name, value)
    fleet.init(role_maker.UserDefinedCollectiveRoleMaker(3, endpoints))
    with fluid.unique_name.guard(), fluid.program_guard(main, fluid.Program()):
        fleet.distributed_optimizer(fluid.optimizer.SGD(0.5), strategy).minimize(mlp_network()[0])
    assert (strategy.nccl_comm_num, main._nccl_comm_num) == (rings, rings)
    assert (strategy.use_hierarchical_allreduce, main._use_hierarchical_allreduce) == (staged, staged)
    assert strategy.exec_strategy.num_threads == threads
    written = fleet.startup_program.global_block().ops[-1]
    assert (written.type, written.attr("nccl_comm_num")) == ("gen_nccl_id", rings)


def test_a_strategy_does_not_ask_for_what_the_optimizer_does(alone: Any) -> None:
    strategy = DistributedStrategy()
    strategy.use_amp = True
    amp = fluid.contrib.mixed_precision.decorate(fluid.optimizer.SGD(0.1))
    with pytest.raises(ValueError, match="can not use OptimizerWithMixedPrecision"):
        CollectiveOptimizer(amp, strategy).minimize(alone[0])
    strategy = DistributedStrategy()
    strategy.recompute_checkpoints = ("a",)
    with pytest.raises(ValueError, match="should be a List"):
        fleet.distributed_optimizer(fluid.optimizer.SGD(0.1), strategy)
