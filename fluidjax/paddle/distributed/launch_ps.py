"""``paddle.distributed.launch_ps``: parameter servers and workers on this machine."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from fluidjax.base.errors import explain
from fluidjax.launching import jobs, roles
from fluidjax.paddle.distributed.launch import COMMAND, truth


def parse_args(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Fluid's arguments and those about restarts, of the command line unless others are given."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--cluster_node_ips", default="127.0.0.1", help="changes nothing: all processes are of this machine")
    add("--node_ip", default="127.0.0.1", help="changes nothing: servers without --endpoints are at 127.0.0.1")
    add("--start_port", type=int, default=6170, help="the first server's port")
    add("--print_config", type=truth, default=True, help="changes nothing, as in Fluid: nothing is printed")
    add(
        "--endpoints",
        default="",
        help="the endpoints of all servers, with commas, instead of ports from --start_port on",
    )
    add("--worker_num", type=int, default=2, help="number of workers")
    add("--server_num", type=int, default=2, help="number of servers to start: the first of --endpoints")
    add("--log_dir", default="logs", help="a folder for the output of each process, serverlog.N and workerlog.N")
    add("--max_restarts", type=int, default=0, help="how often all are started again when one of them has failed")
    add("training_script", help="the script that every process runs")
    add("training_script_args", nargs=argparse.REMAINDER)
    return parser.parse_args(arguments)


def start_procs(args: argparse.Namespace) -> int:
    """Run servers and workers until all workers have ended: returns 0, or 1 if a process failed too often."""
    ports = range(args.start_port, args.start_port + args.server_num)
    servers = args.endpoints.split(",") if args.endpoints else [f"127.0.0.1:{p}" for p in ports]
    if len(servers) < args.server_num:
        raise ValueError(
            explain(
                f"launch_ps: {args.server_num} servers are to start",
                "--server_num of at most the number of --endpoints",
                f"{len(servers)}: {args.endpoints}",
                "name more endpoints, or pass --server_num",
            )
        )
    command = [*COMMAND, args.training_script, *args.training_script_args]

    def members() -> list[jobs.Member]:
        return roles.servers_and_workers(command, servers, args.worker_num, args.server_num)

    code = jobs.run(members, log_dir=args.log_dir or None, restarts=args.max_restarts)
    if not code:
        print("all workers exit, going to finish parameter server")
        print("all parameter server are killed")
    return code


def launch(arguments: Sequence[str] | None = None) -> int:
    """Start what the command line says: ``python -m fluidjax.paddle.distributed.launch_ps``."""
    return start_procs(parse_args(arguments))


if __name__ == "__main__":
    sys.exit(launch())
