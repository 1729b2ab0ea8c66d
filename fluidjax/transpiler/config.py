"""Configuration of transpilers and servers."""

from __future__ import annotations

import os
from typing import Any

from fluidjax.base.errors import explain


class DistributedMode:
    """When a server updates: the attribute ``distributed_mode`` of listen_and_serv."""

    SYNC = 0
    ASYNC = 1
    HALF_ASYNC = 2
    GEO = 3


def _flag(name: str, value: Any) -> Any:
    if value is None:
        raise ValueError(f"{name} can't be None: expected True or False. Leave it out for its default.")
    return value


class DistributeTranspilerConfig:
    """How programs are distributed over machines.

    Attributes:
        slice_var_up: whether to split parameters into blocks for several servers.
        split_method: the PSDispatcher class that assigns blocks to servers; RoundRobin if None.
        min_block_size: minimum number of elements in a block; at least 8192.
        enable_dc_asgd: whether servers compensate for delayed gradients; asynchronous modes only.
        mode: ``pserver``, ``nccl2`` or ``collective``.
        print_log: whether this process's transpilers print the parameters and the servers' ops that they find.
        wait_port: whether to wait until the others are listening.
        half_async, completely_not_async: see fleet's strategies: gradients are sent by a communicator, which waits.
        geo_sgd_mode, geo_sgd_need_push_nums: trainers optimise locally, and send changes every so many steps.
        runtime_split_send_recv, sync_mode: how trainers and servers take turns; one of them at most.
        nccl_comm_num: number of rings that the ops of collective modes name. All rings are the same group of processes.
        use_hierarchical_allreduce, hierarchical_allreduce_inter_nranks: reductions in two stages: written into the
            programs, but the library of collectives (NCCL, gloo) finds its stages itself.
        collective_mode: ``grad_allreduce``, ``local_sgd`` or ``single_process_multi_thread``, for mode ``collective``.
    """

    slice_var_up = True
    split_method: Any = None
    min_block_size = 8192
    enable_dc_asgd = False
    mode = "pserver"
    print_log = False
    wait_port = True
    half_async = False
    completely_not_async = False
    geo_sgd_mode = False
    geo_sgd_need_push_nums = 100
    nccl_comm_num = 1
    use_hierarchical_allreduce = False
    hierarchical_allreduce_inter_nranks = 0
    collective_mode: str | None = None

    def __init__(self) -> None:
        self._runtime_split = False
        self._sync = True

    @property
    def runtime_split_send_recv(self) -> bool:
        """Whether a communicator splits and sends gradients; raises ValueError in sync mode."""
        return self._runtime_split

    @runtime_split_send_recv.setter
    def runtime_split_send_recv(self, value: bool) -> None:
        if _flag("runtime_split_send_recv", value) and self._sync:
            raise ValueError(_both("runtime_split_send_recv", "sync_mode"))
        self._runtime_split = value

    @property
    def sync_mode(self) -> bool:
        """Whether servers wait for the gradients of all trainers; raises ValueError with runtime_split_send_recv."""
        return self._sync

    @sync_mode.setter
    def sync_mode(self, value: bool) -> None:
        if _flag("sync_mode", value) and self._runtime_split:
            raise ValueError(_both("sync_mode", "runtime_split_send_recv"))
        self._sync = value


def _both(wanted: str, other: str) -> str:
    return explain(
        f"the config's {wanted} cannot be True while {other} is", f"{other} False", "both True", f"set {other} first"
    )


class ServerRuntimeConfig:
    """The numbers of threads of Fluid's servers, from FLAGS_rpc_send_thread_num etc. in the environment.

    Attributes:
        _rpc_send_thread_num, _rpc_get_thread_num, _rpc_prefetch_thread_num: written into ``listen_and_serv``; they
            change nothing: a server's loop serves requests one by one, so that no locks are needed, and what decodes
            them has 12 threads for each trainer.
    """

    def __init__(self) -> None:
        self._rpc_send_thread_num = int(os.getenv("FLAGS_rpc_send_thread_num", "12"))
        self._rpc_get_thread_num = int(os.getenv("FLAGS_rpc_get_thread_num", "12"))
        self._rpc_prefetch_thread_num = int(os.getenv("FLAGS_rpc_prefetch_thread_num", "12"))

    def attributes(self) -> dict[str, int]:
        """The settings as attributes of listen_and_serv."""
        kinds = ("get", "send", "prefetch")
        return {f"rpc_{kind}_thread_num": getattr(self, f"_rpc_{kind}_thread_num") for kind in kinds}
