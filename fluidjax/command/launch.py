"""``fluidjax launch``: runs a script in several processes that train together, or as parameter servers and workers.

With --servers N, there are N parameter servers and --workers M workers; otherwise, --workers M trainers.
"""

from __future__ import annotations

import argparse

from fluidjax.launching import jobs, roles
from fluidjax.paddle.distributed.launch import COMMAND

NAME, HELP = "launch", "run a script in several processes that train together"


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="number of training processes (default 2)")
    parser.add_argument("--servers", type=int, default=0, metavar="N", help="number of parameter servers")
    parser.add_argument(
        "--log-dir", metavar="FOLDER", help="write the output of each process to a file in this directory"
    )
    parser.add_argument(
        "--max-restarts", type=int, default=0, metavar="N", help="restart all processes if one fails, at most N times"
    )
    parser.add_argument(
        "--checkpoints", metavar="FOLDER", help="directory of fluidjax.recovery checkpoints, used by restarts"
    )
    parser.add_argument("script", metavar="SCRIPT")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGUMENTS").required = False


def main(options: argparse.Namespace) -> int:
    """Run the job to its end: returns 0, or 1 if a process failed too often."""
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
