"""A controller for searches in several processes, in Fluid's own protocol.

A client connects, sends one line of text and gets one: "next_tokens" for the next solution, or
"<key> TAB <tokens> TAB <reward>" for the one after this reward. Tokens are whole numbers between commas.
"""

from __future__ import annotations

import logging
import socketserver
import threading
from typing import Any

from fluidjax.contrib.slim.searcher import SAController
from fluidjax.log_helper import get_logger

__all__ = ["ControllerServer"]

_logger = get_logger(__name__, logging.INFO, fmt="ControllerServer-%(asctime)s-%(levelname)s: %(message)s")
LONGEST = 1024  # bytes of a message
PATIENCE = 10.0  # seconds to wait for one
_POLL = 0.1


class ControllerServer:
    """Serves a controller on a socket; see the module.

    Args:
        controller: proposes tokens.
        address: (ip, port) to listen on; port 0 takes a free one.
        max_client_num: how many clients may wait.
        search_steps: after so many rewards it ends; None: when it is closed.
        key: what a client has to know. A message without it is logged and not answered.
    """

    def __init__(
        self,
        controller: SAController | None = None,
        address: tuple[str, int] = ("127.0.0.1", 0),
        max_client_num: int = 100,
        search_steps: int | None = None,
        key: str | None = None,
    ):
        self._controller: Any = controller
        self._address = address
        self._max_client_num = max_client_num
        self._search_steps = search_steps
        self._key = key
        self._ip, self._port = address
        self._closed = threading.Event()
        self._server: Any = None

    def start(self) -> str:
        """Listen, and serve in a thread; its name."""
        owner = self

        class Server(socketserver.TCPServer):
            allow_reuse_address = True
            request_queue_size = owner._max_client_num
            timeout = _POLL

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                self.request.settimeout(PATIENCE)
                owner._answer(self.request, self.client_address)

        self._server = Server(self._address, Handler)
        self._ip, self._port = self._server.server_address[:2]
        _logger.info(f"listen on: [{self._ip}:{self._port}]")
        thread = threading.Thread(target=self.run, daemon=True, name="fluidjax-controller-server")
        thread.start()
        return str(thread)

    def close(self) -> None:
        """End the server."""
        self._closed.set()

    def port(self) -> int:
        """The port that it listens on."""
        return self._port

    def ip(self) -> str:
        """The address that it listens on."""
        return self._ip

    def run(self) -> None:
        """Answer one client after another until the search has made its steps, or the server is closed."""
        with self._server:
            while not self._closed.is_set() and not self._done():
                self._server.handle_request()
        _logger.info("server closed!")

    def _done(self) -> bool:
        return self._search_steps is not None and self._controller.steps >= self._search_steps

    def _answer(self, connection: Any, client: Any) -> None:
        try:
            message = connection.recv(LONGEST).decode().strip("\n")
            if message != "next_tokens":
                key, tokens, reward = message.split("\t")
                if key != self._key:
                    raise ValueError("another key")
                self._controller.update([int(token) for token in tokens.split(",")], float(reward))
            connection.sendall(",".join(map(str, self._controller.next_tokens())).encode())
        except (ValueError, OSError) as error:  # noise, or a client that went away
            _logger.info(f"not answered: a message from {client}: {error}")
