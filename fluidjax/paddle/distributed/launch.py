"""``paddle.distributed.launch``: one process per device of this machine, training together."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

from fluidjax.base.places import get_cuda_device_count
from fluidjax.launching import jobs, roles
from fluidjax.paddle.distributed.cloud_utils import get_cloud_cluster, get_trainers_num
from fluidjax.paddle.distributed.utils import (  # noqa: F401 - scripts import all of these from here, as in Paddle
    Cluster,
    Hdfs,
    JobServer,
    Pod,
    Trainer,
    TrainerProc,
    add_arguments,
    find_free_ports,
    get_cluster,
    get_host_name_ip,
    get_logger,
    logger,
    start_local_trainers,
    terminate_local_procs,
    watch_local_trainers,
)

COMMAND = (sys.executable, "-u", "-m", "fluidjax", "run")
_RULE = "-----------  Configuration Arguments -----------", "------------------------------------------------"


def truth(text: str) -> bool:
    """Parse a boolean argument."""
    return text.lower() in ("true", "t", "1", "yes")


def _parse_args(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Fluid's arguments and those about restarts, of the command line unless others are given."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--cluster_node_ips", default="127.0.0.1", help="addresses of all machines, with commas")
    add("--node_ip", default="127.0.0.1", help="this machine's address")
    add("--use_paddlecloud", action="store_true", help="whether a cloud's environment tells of the machines")
    add("--started_port", type=int, help="the first port of each machine (default: free ones on one, 6070 on several)")
    add("--print_config", type=truth, default=True, help="whether to print these arguments")
    add("--selected_gpus", help="devices, with commas: a process for each (default: all accelerators)")
    add("--log_level", type=int, default=20, help="changes nothing: failures alone are reported")
    add("--log_dir", help="a folder for the output of each process, workerlog.N")
    add("--max_restarts", type=int, default=0, help="how often all are started again when one of them has failed")
    add("training_script", help="the script that every process runs")
    add("training_script_args", nargs=argparse.REMAINDER)
    return parser.parse_args(arguments)


def _print_arguments(args: argparse.Namespace) -> None:
    """Print the arguments, by name."""
    print(_RULE[0])
    for name, value in sorted(vars(args).items()):
        print(f"{name}: {value}")
    print(_RULE[1], flush=True)


def launch(args: argparse.Namespace) -> int:
    """Run the processes of this machine to their end: returns 0, or 1 if one failed too often.

    Raises ValueError if this machine is not part of the cluster, or has no devices.
    """
    if args.print_config:
        _print_arguments(args)
    devices = get_gpus(args.selected_gpus)
    command = [*COMMAND, args.training_script, *args.training_script_args]

    def members() -> list[jobs.Member]:
        cluster, pod = _cluster(args, devices)
        first = pod.trainers[0].rank or 0
        return roles.workers(command, list(map(str, cluster.trainers_endpoints())), first, list(map(str, devices)))

    return jobs.run(members, log_dir=args.log_dir, restarts=args.max_restarts)


def _cluster(options: argparse.Namespace, devices: list[Any]) -> tuple[Cluster, Pod]:
    if options.use_paddlecloud and get_trainers_num() != 1:
        return get_cloud_cluster(options.cluster_node_ips, options.node_ip, options.started_port, devices)
    return get_cluster_from_args(options, devices)


def get_cluster_from_args(args: argparse.Namespace, selected_gpus: list[Any]) -> tuple[Cluster, Pod]:
    """The cluster that the command line describes, and this machine in it.

    Each machine has a process for each device, at free ports if it is the only one and neither a port nor a cloud is
    named, else at ports from ``started_port`` or 6070 on. Raises ValueError if this machine is not part of the cluster.
    """
    addresses = [a.strip() for a in args.cluster_node_ips.split(",")]
    if args.node_ip not in addresses:
        raise ValueError(
            f"--node_ip {args.node_ip}: expected one of the addresses of --cluster_node_ips"
            f" ({', '.join(addresses)}); name this machine there"
        )
    first = roles.FIRST_PORT if args.use_paddlecloud and args.started_port is None else args.started_port
    everyone, count = roles.endpoints(addresses, selected_gpus, first), len(selected_gpus)
    endpoints = [everyone[i * count : (i + 1) * count] for i in range(len(addresses))]
    return get_cluster(addresses, args.node_ip, endpoints, selected_gpus)


def get_gpus(selected_gpus: str | None) -> list[Any]:
    """The devices to use: those named, with commas, or all accelerators.

    Where CUDA_VISIBLE_DEVICES names devices, these are places in it. Raises AssertionError for a device that it does
    not name, ValueError if no device is named and there is no accelerator.
    """
    if selected_gpus is not None:
        named, visible = [d.strip() for d in selected_gpus.split(",")], os.environ.get("CUDA_VISIBLE_DEVICES")
        if not visible:
            return named
        known = visible.split(",")
        for device in named:
            assert device in known, (
                f"--selected_gpus {selected_gpus}: expected devices of CUDA_VISIBLE_DEVICES ({visible}), received"
                f" {device}; name others, or change that variable"
            )
        return [known.index(device) for device in named]
    count = get_cuda_device_count()
    if not count:
        raise ValueError(
            "--selected_gpus: expected it where there is no accelerator, to say how many processes to start; write"
            " --selected_gpus 0,1 for two processes on this CPU"
        )
    return [str(i) for i in range(count)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of ``python -m fluidjax.paddle.distributed.launch``."""
    return launch(_parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
