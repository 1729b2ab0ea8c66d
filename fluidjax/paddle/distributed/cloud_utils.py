"""``paddle.distributed.cloud_utils``: the processes of a job, as a cloud's environment describes them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from fluidjax.base.errors import explain
from fluidjax.paddle.distributed.utils import Cluster, Pod, get_cluster, logger

_PORT = 6170  # the first one of each machine where nothing names another


def get_trainers_num() -> int:
    """The number of processes of the job (PADDLE_TRAINERS_NUM), 1 where nothing says it."""
    return int(os.environ.get("PADDLE_TRAINERS_NUM", "1"))


def get_cloud_cluster(
    args_node_ips: str, args_node_ip: str, args_port: int | None, selected_gpus: Sequence[Any]
) -> tuple[Cluster, Pod]:
    """The cluster, and this machine in it.

    PADDLE_TRAINERS names all machines, POD_IP and PADDLE_TRAINER_ID this one. DISTRIBUTED_TRAINER_ENDPOINTS has
    TRAINER_PORTS_NUM endpoints of each machine; without it there is a port for each device, counted from PADDLE_PORT
    (on several machines with enough ports), ``args_port`` or 6170.

    Args:
        args_node_ips: the machines that the command line names, with commas.
        args_node_ip: this machine, as the command line names it.
        args_port: the first port that the command line names.
        selected_gpus: the devices of each machine.

    Raises:
        AssertionError: a variable is missing, or the number of endpoints is not that of machines and ports.
    """
    machines, here = _told("PADDLE_TRAINERS").split(","), _told("POD_IP")
    rank, ports = int(_told("PADDLE_TRAINER_ID")), int(_told("TRAINER_PORTS_NUM"))
    for option, given, known in (
        ("node_ip", args_node_ip, here),
        ("cluster_node_ips", args_node_ips, ",".join(machines)),
    ):
        if given not in ("127.0.0.1", known):
            logger.warning("--%s %s is not used: the environment says %s", option, given, known)
    every = os.environ.get("DISTRIBUTED_TRAINER_ENDPOINTS")
    if every is None:
        first = _first_port(args_port, len(machines) > 1 and ports >= len(selected_gpus))
        endpoints = [[f"{address}:{first + i}" for i in range(len(selected_gpus))] for address in machines]
    else:
        named = every.split(",")
        assert len(named) == len(machines) * ports, explain(
            "DISTRIBUTED_TRAINER_ENDPOINTS: endpoints are missing, or too many",
            f"{ports} (TRAINER_PORTS_NUM) for each of {len(machines)} machines (PADDLE_TRAINERS)",
            f"{len(named)}",
            "correct these variables",
        )
        endpoints = [named[i : i + ports] for i in range(0, len(named), ports)]
    cluster, _ = get_cluster(machines, here, endpoints, selected_gpus)
    return cluster, cluster.pods[rank]


def _told(name: str) -> str:
    value = os.environ.get(name)
    assert value is not None, explain(
        f"{name} should not be None", "a cloud's environment", f"none of that name for {name}", "set it, or launch"
        " without --use_paddlecloud",
    )  # fmt: skip
    return value


def _first_port(given: int | None, may_differ: bool) -> int:
    told = os.environ.get("PADDLE_PORT", "")
    return int(told) if may_differ and told.isdigit() else given if given is not None else _PORT
