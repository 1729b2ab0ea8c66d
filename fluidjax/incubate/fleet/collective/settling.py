"""What the settings of a collective strategy mean for one another, before programs are made by them."""

from __future__ import annotations

import logging
from typing import Any

from fluidjax.base.flags import flag

WRAPPING = ("forward_recompute", "recompute_checkpoints", "use_amp", "amp_loss_scaling")  # what wraps the optimizer

_log = logging.getLogger(__name__)


def check_wrapped(strategy: Any, optimizer: Any) -> None:
    """ValueError where a strategy asks for what an optimizer does already, or cannot be made to do."""
    kind = type(optimizer).__name__
    if strategy.forward_recompute:
        if not strategy.recompute_checkpoints:
            raise ValueError("please set strategy.recompute_checkpoints when set strategy.forward_recompute as True")
        _check_kind("forward_recompute", kind, ("RecomputeOptimizer", "OptimizerWithMixedPrecision"))
    if strategy.use_amp:
        _check_kind("mixed_precision", kind, ("OptimizerWithMixedPrecision", "DGCMomentumOptimizer"))


def _check_kind(setting: str, kind: str, kinds: tuple[str, ...]) -> None:
    if kind in kinds:
        raise refused(setting, kind)


def refused(setting: str, kind: str) -> ValueError:
    """What is raised where a strategy asks for what an optimizer does already, or cannot be made to do."""
    return ValueError(f"can not use {kind} when you set DistStrategy.{setting} as True: pass the optimizer within it")


def settle_rings(strategy: Any, endpoints: list[str]) -> None:
    """Let the number of hosts, and synchronous batch norm, limit rings and threads."""
    if len({endpoint.split(":")[0].strip() for endpoint in endpoints}) == 1:
        if strategy.nccl_comm_num > 1 or strategy.use_hierarchical_allreduce:
            _log.warning("set nccl_comm_num=1 and use_hierarchical_allreduce=False since you only have 1 node.")
        strategy.nccl_comm_num, strategy.use_hierarchical_allreduce = 1, False
    if flag("FLAGS_sync_nccl_allreduce"):
        stages = 2 if strategy.use_hierarchical_allreduce else 1
        strategy.exec_strategy.num_threads = stages * strategy.nccl_comm_num + 1
    if strategy.sync_batch_norm:
        strategy.nccl_comm_num, strategy.use_hierarchical_allreduce = 1, False
        strategy.exec_strategy.num_threads = 1
