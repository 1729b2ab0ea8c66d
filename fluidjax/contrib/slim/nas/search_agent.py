"""The client of a ControllerServer."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from fluidjax.contrib.slim.nas.controller_server import LONGEST, PATIENCE

__all__ = ["SearchAgent"]


class SearchAgent:
    """Asks a server for solutions.

    Args:
        server_ip, server_port: where it listens.
        key: what it wants to hear; see ControllerServer.
    """

    def __init__(self, server_ip: str | None = None, server_port: int | None = None, key: str | None = None):
        self.server_ip = server_ip
        self.server_port = server_port
        self._key = key

    def update(self, tokens: Sequence[int], reward: float) -> list[int]:
        """Tell the reward of a solution; the next one to try."""
        return self._ask("{}\t{}\t{}".format(self._key, ",".join(map(str, tokens)), reward))

    def next_tokens(self) -> list[int]:
        """The next solution to try."""
        return self._ask("next_tokens")

    def _ask(self, message: str) -> list[int]:
        """Raises ConnectionError if the server does not answer: it has ended, or the key is not its own."""
        with socket.create_connection((self.server_ip, self.server_port), PATIENCE) as connection:
            connection.sendall(message.encode())
            answer = connection.recv(LONGEST).decode().strip("\n")
        if not answer:
            where = f"{self.server_ip}:{self.server_port}"
            raise ConnectionError(
                f"the controller at {where} did not answer; check that it runs, and that keys are equal"
            )
        return [int(token) for token in answer.split(",")]
