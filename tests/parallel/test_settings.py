"""Every setting of a distributed job has an effect, or says that it changes nothing and why, or is refused."""

from __future__ import annotations

import argparse
import inspect
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.compiler import BuildStrategy, ExecutionStrategy
from fluidjax.incubate.fleet.collective import DistributedStrategy
from fluidjax.incubate.fleet.parameter_server.distribute_transpiler.distributed_strategy import TrainerRuntimeConfig
from fluidjax.paddle.distributed import launch, launch_ps
from fluidjax.transpiler.config import DistributeTranspilerConfig, ServerRuntimeConfig
from tests.parallel.nets import mlp
from tests.parallel.test_data_parallel import Training

EFFECT, NOTHING, REFUSED = "an effect", "nothing", "refused"


def table(effect: str, nothing: str, refused: str = "") -> dict[str, str]:
    kinds = ((effect, EFFECT), (nothing, NOTHING), (refused, REFUSED))
    return {name: kind for names, kind in kinds for name in names.split()}


EXECUTION = table(
    "_dry_run num_threads use_cuda num_iteration_per_run",
    "allow_op_delay use_experimental_executor num_iteration_per_drop_scope use_thread_barrier",
)
BUILD = table(
    "gradient_scale_strategy sync_batch_norm debug_graphviz_path async_mode",
    "trainer_id trainers_endpoints reduce_strategy is_distribution nccl_comm_num use_hierarchical_allreduce"
    " hierarchical_allreduce_inter_nranks fuse_all_optimizer_ops fuse_all_reduce_ops fuse_bn_act_ops fuse_broadcast_ops"
    " fuse_elewise_add_act_ops fuse_relu_depthwise_conv enable_auto_fusion enable_sequential_execution"
    " enable_backward_optimizer_op_deps remove_unnecessary_lock enable_inplace memory_optimize cache_runtime_context"
    " mkldnn_enabled_op_types",
    "num_trainers",
)
FLEET = table(
    "mode collective_mode use_local_sgd _ut4grad_allreduce forward_recompute recompute_checkpoints use_amp"
    " amp_loss_scaling exec_strategy",
    "",
    "use_dist_fc dist_fc_config",
)
TRANSPILER = table(
    "slice_var_up split_method min_block_size enable_dc_asgd mode print_log wait_port half_async completely_not_async"
    " geo_sgd_mode geo_sgd_need_push_nums nccl_comm_num use_hierarchical_allreduce hierarchical_allreduce_inter_nranks"
    " collective_mode runtime_split_send_recv sync_mode",
    "",
)
SERVERS = table("", "_rpc_send_thread_num _rpc_get_thread_num _rpc_prefetch_thread_num")
TRAINERS = table(
    "communicator_max_merge_var_num communicator_send_queue_size communicator_min_send_grad_num_before_recv"
    " communicator_is_sgd_optimizer",
    "communicator_independent_recv_thread communicator_thread_pool_size communicator_send_wait_times rpc_deadline"
    " rpc_retry_times",
)
PIPELINE = table("optimizer cut_list place_list queue_size", "concurrency_list sync_steps start_cpu_core_id")
LAUNCH = table(
    "cluster_node_ips node_ip use_paddlecloud started_port print_config selected_gpus log_dir max_restarts"
    " training_script training_script_args",
    "log_level",
)
LAUNCH_PS = table(
    "start_port endpoints worker_num server_num log_dir max_restarts training_script training_script_args",
    "cluster_node_ips node_ip print_config",
)


def of_config() -> set[str]:
    known = vars(DistributeTranspilerConfig)
    return {name for name, value in known.items() if name[0] != "_" and not callable(value)}


@pytest.mark.parametrize(
    ("known", "found", "kind"),
    [
        (EXECUTION, set(ExecutionStrategy._defaults), ExecutionStrategy),
        (BUILD, set(BuildStrategy._defaults), BuildStrategy),
        (FLEET, DistributedStrategy._defaults.keys() - BuildStrategy._defaults.keys(), DistributedStrategy),
        (TRANSPILER, of_config(), DistributeTranspilerConfig),
        (SERVERS, set(vars(ServerRuntimeConfig())), ServerRuntimeConfig),
        (TRAINERS, set(TrainerRuntimeConfig().runtime_configs), TrainerRuntimeConfig),
        (PIPELINE, set(PIPELINE), fluid.optimizer.PipelineOptimizer),
    ],
)
def test_all_settings_say_what_they_change(known: dict[str, str], found: set[str], kind: type) -> None:
    """The table has all settings of the class, whose docstring has an entry for each that agrees with the table."""
    assert set(known) == found
    said = entries(kind.__doc__ or "")
    for name, effect in known.items():
        assert name in said, f"{kind.__name__}.{name} is not documented"
        assert (effect == NOTHING) == says_nothing(said[name]), f"{kind.__name__}.{name}: {said[name]}"
        assert (effect == REFUSED) == ("Error" in said[name]), f"{kind.__name__}.{name}: {said[name]}"


def entries(docstring: str) -> dict[str, str]:
    """What a docstring's lists say of each name."""
    found = {}
    for entry in re.findall(r"^    \S.*\n?(?:        .*\n?)*", inspect.cleandoc(docstring), re.MULTILINE):
        names, _, text = " ".join(entry.split()).partition(": ")
        found.update(dict.fromkeys(names.split(", "), text))
    return found


def says_nothing(text: str) -> bool:
    return bool(re.search(r"changes? nothing", text))


@pytest.mark.parametrize(("known", "parse"), [(LAUNCH, launch._parse_args), (LAUNCH_PS, launch_ps.parse_args)])
def test_all_arguments_of_launchers_say_what_they_change(
    known: dict[str, str], parse: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsers: list[argparse.ArgumentParser] = []
    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", lambda self, given: parsers.append(self))
    parse([])
    helps = {action.dest: action.help or "" for action in parsers[0]._actions if action.dest != "help"}
    assert set(helps) == set(known)
    for name, effect in known.items():
        assert (effect == NOTHING) == says_nothing(helps[name]), name


def test_what_changes_nothing_changes_no_bit() -> None:
    """All such settings of both strategies, set to other values at once."""
    values = [trained({}, {}), trained(others(BuildStrategy, BUILD), others(ExecutionStrategy, EXECUTION))]
    for name, value in values[0].items():
        assert np.array_equal(value, values[1][name]), name


def others(kind: Any, known: dict[str, str]) -> dict[str, Any]:
    """Another value for each setting that changes nothing."""
    found = {name: kind._defaults[name] for name, effect in known.items() if effect == NOTHING}
    kinds = {"reduce_strategy": BuildStrategy.ReduceStrategy.Reduce, "memory_optimize": True}
    kinds |= {"trainers_endpoints": ["127.0.0.1:6170"], "mkldnn_enabled_op_types": {"mul"}}
    return {n: kinds[n] if n in kinds else not v if isinstance(v, bool) else v + 2 for n, v in found.items()}


def trained(build: dict[str, Any], execution: dict[str, Any]) -> dict[str, np.ndarray]:
    """The parameters after some steps on two devices."""
    training = Training(mlp, 2, **build)
    for name, value in execution.items():
        setattr(training.program._exec_strategy, name, value)
    for step in range(3):
        training.run(training.feed(step))
    return training.values()


def test_trainers_that_the_program_does_not_know_are_refused() -> None:
    training = Training(mlp, 2, num_trainers=3)
    with pytest.raises(AssertionError, match=r"num_trainers to be as many as .*\(1\), received 3"):
        training.run(training.feed(0))


def test_graphs_are_drawn_where_a_strategy_says(tmp_path: Path) -> None:
    training = Training(mlp, 2, debug_graphviz_path=str(tmp_path / "mlp"))
    training.run(training.feed(0))
    assert {path.name for path in tmp_path.iterdir()} == {"mlp_original_graph", "mlp_fused_graph"}


@pytest.mark.parametrize(("asynchronous", "steps"), [(True, 3), (False, 1)])
def test_a_run_may_be_several_steps(asynchronous: bool, steps: int) -> None:
    """In async mode alone; what is fetched is the last step's, and a pass may end within a run."""
    training = Training(mlp, 1, async_mode=asynchronous)
    training.program._exec_strategy.num_iteration_per_run = 3
    plain = Training(mlp, 1)
    for _ in range(2):
        (loss,) = training.run(training.feed(0))
        losses = [plain.run(plain.feed(0))[0] for _ in range(steps)]
        assert np.array_equal(loss, losses[-1])
    for name, value in training.values().items():
        assert np.array_equal(value, plain.value(name)), name
