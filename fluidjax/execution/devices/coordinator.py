"""The process through which those of a job find each other and hear of deaths: jax's coordination service.

In jax the first process serves itself, and so cannot end before the last one has. Here it starts this file as a process
of its own, which ends when all have left, when one died, or when the first one ends without having said that it leaves.
So it imports nothing of this package.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time

_READY = b"ready\n"
_TRIES = 20


def start(address: str, count: int, heartbeat: int) -> int:
    """Serve a job of ``count`` processes at an address; returns the descriptor for ``leave``.

    Nothing of this process's own output is shared with the server: who reads it would wait for the server's end, too.

    Raises RuntimeError where the address cannot be bound.
    """
    (told, tell), (heard, say) = os.pipe(), os.pipe()
    silent = (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)
    os.posix_spawn(
        sys.executable,
        [sys.executable, "-P", __file__, address, str(count), str(heartbeat)],
        {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        file_actions=[(os.POSIX_SPAWN_DUP2, told, 0), (os.POSIX_SPAWN_DUP2, say, 1), silent],
    )
    os.close(told)
    os.close(say)
    with open(heard, "rb") as answer:
        said = answer.read()
    if said != _READY:
        os.close(tell)
        raise RuntimeError(said.decode(errors="replace") or f"{sys.executable} does not start")
    return tell


def leave(descriptor: int) -> None:
    """Let the server live on when this process ends."""
    with contextlib.suppress(BrokenPipeError):  # it has ended: a process had died
        os.write(descriptor, b".")


def _serve(address: str, count: int, heartbeat: int) -> None:
    from jaxlib import _jax

    try:
        _await_free(address)
        # without a timeout of shutdowns nobody waits for the others when it leaves
        service = _jax.get_distributed_runtime_service(
            address, count + 1, heartbeat_timeout=heartbeat, shutdown_timeout=0
        )
    except Exception as error:
        os.write(1, str(error).encode())
        return
    os.write(1, _READY)
    os.close(1)
    # This process is the last one of the job. A death among the others is announced to all, and ends it.
    client = _jax.get_distributed_runtime_client(address, count, init_timeout=300, heartbeat_timeout=heartbeat)
    client.connect()
    client.get_live_nodes(list(range(count + 1)))  # is answered when all who live have asked, and nobody else asks
    client.shutdown()
    service.shutdown()


def _await_free(address: str) -> None:
    """Wait until nobody holds an address: gRPC would share it. An earlier job may be about to end."""
    host, _, port = address.rpartition(":")
    for _ in range(_TRIES):
        try:
            return socket.create_server((host, int(port))).close()
        except OSError as error:
            refusal = error
        time.sleep(0.05)
    raise refusal


def _end_with_the_first() -> None:
    if not os.read(0, 1):
        os._exit(1)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):  # of a whole group: the others may still have something to do
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_the_first, daemon=True).start()
    _serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
