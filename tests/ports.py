"""Ports for servers of tests: below those that the system gives to connections, and other ones for each test process.

A port that the system chose and that was closed again may be anybody's before the server binds it.
"""

from __future__ import annotations

import itertools
import os
import socket

_FIRST, _ENOUGH, _PROCESSES = 12000, 2000, 10
_process = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _PROCESSES
# Where to begin differs from run to run: what the run before has closed may still wait.
_ports = itertools.cycle(range(_ENOUGH))
_start = os.getpid() * 37


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens at, none given twice until all were."""
    places = ((_start + number) % _ENOUGH for number in itertools.islice(_ports, _ENOUGH))
    ports = (_FIRST + _process * _ENOUGH + place for place in places)
    found = list(itertools.islice(filter(_is_free, ports), count))
    if len(found) < count:
        raise OSError(f"{count} ports wanted, {len(found)} of {_ENOUGH} are free")
    return found


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def free_endpoints(count: int) -> list[str]:
    """Endpoints at such ports of 127.0.0.1."""
    return [f"127.0.0.1:{port}" for port in free_ports(count)]
