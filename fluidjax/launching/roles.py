"""The processes of a job and their environment variables, as set by Fluid's launchers."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from fluidjax.launching.jobs import Member

FIRST_PORT = 6070  # the first one of workers on several machines


def free_ports(count: int) -> list[int]:
    """Free ports on this machine; nothing reserves them."""
    sockets = [socket.create_server(("", 0)) for _ in range(count)]
    try:
        return [s.getsockname()[1] for s in sockets]
    finally:
        for s in sockets:
            s.close()


def endpoints(addresses: Sequence[str], devices: Sequence[str], first_port: int | None) -> list[str]:
    """The endpoints of all workers: one per device of each machine."""
    if first_port is None and len(addresses) == 1:
        ports = free_ports(len(devices))
    else:
        ports = [(first_port or FIRST_PORT) + i for i in range(len(devices))]
    return [f"{address}:{port}" for address in addresses for port in ports]


def workers(command: Sequence[str], everyone: Sequence[str], first: int, devices: Sequence[str]) -> list[Member]:
    """The workers on this machine.

    Args:
        command: the command line of each.
        everyone: the endpoints of the workers on all machines.
        first: rank of the first worker on this machine.
        devices: the device of each worker on this machine.
    """
    found = []
    for i, device in enumerate(devices):
        told = {
            "FLAGS_selected_gpus": device,
            "PADDLE_TRAINER_ID": str(first + i),
            "PADDLE_CURRENT_ENDPOINT": everyone[first + i],
            "PADDLE_TRAINERS_NUM": str(len(everyone)),
            "PADDLE_TRAINER_ENDPOINTS": ",".join(everyone),
        }
        found.append(Member(f"worker {first + i}", f"workerlog.{i}", tuple(command), told))
    return found


def servers_and_workers(
    command: Sequence[str], servers: Sequence[str], count: int, here: int | None = None
) -> list[Member]:
    """Parameter servers and ``count`` workers, which like Fluid's know the address of the last server started.

    Args:
        servers: the endpoints of all servers.
        here: how many of them, the first ones, this machine starts; all unless given.
    """
    told = {"PADDLE_PSERVERS_IP_PORT_LIST": ",".join(servers), "PADDLE_TRAINERS_NUM": str(count)}
    found = []
    for i, endpoint in enumerate(servers[:here]):
        address, port = endpoint.rsplit(":", 1)
        told = {**told, "PADDLE_PORT": port, "POD_IP": address}
        role = {**told, "TRAINING_ROLE": "PSERVER"}
        found.append(Member(f"server {i}", f"serverlog.{i}", tuple(command), role, serves=True))
    for i in range(count):
        role = {**told, "TRAINING_ROLE": "TRAINER", "PADDLE_TRAINER_ID": str(i)}
        found.append(Member(f"worker {i}", f"workerlog.{i}", tuple(command), role))
    return found
