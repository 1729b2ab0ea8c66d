"""``paddle.distributed.launch``: one process per device of this machine, training together."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from fluidjax.base.places import get_cuda_device_count
from fluidjax.launching import jobs, roles

COMMAND = (sys.executable, "-u", "-m", "fluidjax", "run")
_RULE = "-----------  Configuration Arguments -----------", "------------------------------------------------"


def truth(text: str) -> bool:
    """Parse a boolean argument."""
    return text.lower() in ("true", "t", "1", "yes")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare Fluid's arguments, and those about restarts."""
    add = parser.add_argument
    add("--cluster_node_ips", default="127.0.0.1", help="addresses of all machines, with commas")
    add("--node_ip", default="127.0.0.1", help="this machine's address")
    add("--use_paddlecloud", action="store_true", help="accepted; the arguments count")
    add("--started_port", type=int, help="the first port of each machine (default: free ones on one, 6070 on several)")
    add("--print_config", type=truth, default=True, help="whether to print these arguments")
    add("--selected_gpus", help="devices, with commas: a process for each (default: all accelerators)")
    add("--log_level", type=int, default=20, help="accepted")
    add("--log_dir", help="a folder for the output of each process, workerlog.N")
    add("--max_restarts", type=int, default=0, help="how often all are started again when one of them has failed")
    add("training_script", help="the script that every process runs")
    add("training_script_args", nargs=argparse.REMAINDER)


def print_arguments(options: argparse.Namespace) -> None:
    """Print the arguments, by name."""
    print(_RULE[0])
    for name, value in sorted(vars(options).items()):
        print(f"{name}: {value}")
    print(_RULE[1], flush=True)


def launch(options: argparse.Namespace) -> int:
    """Run the processes of this machine to their end: returns 0, or 1 if one failed too often.

    Raises ValueError if this machine is not part of the cluster, or has no devices.
    """
    if options.print_config:
        print_arguments(options)
    addresses = [a.strip() for a in options.cluster_node_ips.split(",")]
    if options.node_ip not in addresses:
        raise ValueError(
            f"--node_ip {options.node_ip}: expected one of the addresses of --cluster_node_ips"
            f" ({', '.join(addresses)}); name this machine there"
        )
    devices = _devices(options.selected_gpus)

    def members() -> list[jobs.Member]:
        everyone = roles.endpoints(addresses, devices, options.started_port)
        command = [*COMMAND, options.training_script, *options.training_script_args]
        return roles.workers(command, everyone, addresses.index(options.node_ip) * len(devices), devices)

    return jobs.run(members, log_dir=options.log_dir, restarts=options.max_restarts)


def _devices(selected: str | None) -> list[str]:
    if selected is not None:
        return [d.strip() for d in selected.split(",")]
    count = get_cuda_device_count()
    if not count:
        raise ValueError(
            "--selected_gpus: expected it where there is no accelerator, to say how many processes to start; write"
            " --selected_gpus 0,1 for two processes on this CPU"
        )
    return [str(i) for i in range(count)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of ``python -m fluidjax.paddle.distributed.launch``."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    return launch(parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
