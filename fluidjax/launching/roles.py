"""Which processes a job has, and what each of them is told by its environment: as Fluid's launchers tell it."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from fluidjax.launching.jobs import Member

_PORT = 6070  # the first one of workers on several machines


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens at; they are free until somebody takes them."""
    sockets = [socket.create_server(("", 0)) for _ in range(count)]
    try:
        return [s.getsockname()[1] for s in sockets]
    finally:
        for s in sockets:
            s.close()


def endpoints(addresses: Sequence[str], devices: Sequence[str], first_port: int | None) -> list[str]:
    """The endpoints of all workers: one for each device of each machine."""
    if first_port is None and len(addresses) == 1:
        ports = free_ports(len(devices))
    else:
        ports = [(first_port or _PORT) + i for i in range(len(devices))]
    return [f"{address}:{port}" for address in addresses for port in ports]


def workers(command: Sequence[str], everyone: Sequence[str], first: int, devices: Sequence[str]) -> list[Member]:
    """The workers of this machine.

    Args:
        command: what each runs.
        everyone: the endpoints of the workers of all machines.
        first: the rank of the first one here.
        devices: the device of each one here.
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


def servers_and_workers(command: Sequence[str], servers: Sequence[str], count: int) -> list[Member]:
    """Parameter servers, by their endpoints, and ``count`` workers, which find the last server's address as Fluid's."""
    told = {"PADDLE_PSERVERS_IP_PORT_LIST": ",".join(servers), "PADDLE_TRAINERS_NUM": str(count)}
    found = []
    for i, endpoint in enumerate(servers):
        address, port = endpoint.rsplit(":", 1)
        told = {**told, "PADDLE_PORT": port, "POD_IP": address}
        role = {**told, "TRAINING_ROLE": "PSERVER"}
        found.append(Member(f"server {i}", f"serverlog.{i}", tuple(command), role, serves=True))
    for i in range(count):
        role = {**told, "TRAINING_ROLE": "TRAINER", "PADDLE_TRAINER_ID": str(i)}
        found.append(Member(f"worker {i}", f"workerlog.{i}", tuple(command), role))
    return found
