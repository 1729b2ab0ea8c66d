"""``fluidjax launch``: run a script in several processes, which train together, or as parameter servers and workers.

With --servers N the processes are N parameter servers and --workers M workers; without, --workers M trainers.
"""

from __future__ import annotations

import argparse

from fluidjax.launching import jobs, roles
from fluidjax.paddle.distributed.launch import COMMAND

NAME, HELP = "launch", "run a script in several processes that train together"


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="how many processes train (default 2)")
    parser.add_argument("--servers", type=int, default=0, metavar="N", help="how many parameter servers there are")
    parser.add_argument("--log-dir", metavar="FOLDER", help="write the output of each process to a file there")
    parser.add_argument(
        "--max-restarts", type=int, default=0, metavar="N", help="start all again when one has failed, N times at most"
    )
    parser.add_argument(
        "--checkpoints", metavar="FOLDER", help="where fluidjax.recovery keeps what restarts begin from"
    )
    parser.add_argument("script", metavar="SCRIPT")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGUMENTS")


def main(options: argparse.Namespace) -> int:
    """Run the job to its end: 0, or 1 where a process failed too often."""
    command = [*COMMAND, options.script, *options.arguments]
    kept = {} if options.checkpoints is None else {"FLUIDJAX_CHECKPOINTS": options.checkpoints}

    def members() -> list[jobs.Member]:
        if options.servers:
            servers = roles.endpoints(["127.0.0.1"], ["0"] * options.servers, None)
            found = roles.servers_and_workers(command, servers, options.workers)
        else:
            devices = [str(i) for i in range(options.workers)]
            found = roles.workers(command, roles.endpoints(["127.0.0.1"], devices, None), 0, devices)
        return [member.also_told(kept) for member in found]

    return jobs.run(members, log_dir=options.log_dir, restarts=options.max_restarts)
