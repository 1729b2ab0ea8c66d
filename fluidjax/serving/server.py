"""A server from start to clean shutdown: Ctrl-C and SIGTERM stop it after pending requests."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator

import uvicorn

from fluidjax.serving.application import Application
from fluidjax.serving.model import ServedModel
from fluidjax.serving.settings import Settings

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Connections beside those of requests: browsers keep some open.
_CONNECTIONS = 512
# Seconds that an idle connection stays: longer than proxies keep theirs (60), so that none is closed as it is used.
_IDLE = 75


class Server:
    """A model served at an address, which is bound immediately.

    Args:
        model: the model to serve.
        settings: the limits.
        host, port: the address; port 0 selects a free one. Raises OSError if it cannot be bound.
    """

    def __init__(self, model: ServedModel, settings: Settings, host: str = "127.0.0.1", port: int = 0):
        self._application = Application(model, settings)
        self._socket = _listening(host, port)
        config = uvicorn.Config(
            self._application.asgi,
            log_level="warning",
            access_log=False,
            limit_concurrency=settings.queue + _CONNECTIONS,
            timeout_keep_alive=_IDLE,
            timeout_graceful_shutdown=int(settings.timeout) + 1,
            h11_max_incomplete_event_size=64 * 1024,
            http="h11",
            ws="none",
        )
        self._server = uvicorn.Server(config)

    @property
    def url(self) -> str:
        """The server's URL."""
        host, port = self._socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    @property
    def ready(self) -> threading.Event:
        """Set once the model is warm."""
        return self._application.worker.ready

    @property
    def alone(self) -> str | None:
        """The reason why requests are not batched; None if they are."""
        return self._application.worker.alone

    def run(self, warm: Callable[[], None] = lambda: None) -> None:
        """Serve until a signal or ``stop``; ``warm`` is called once the model is warm, unless stopped earlier."""
        threading.Thread(target=self._tell, args=[warm], daemon=True).start()
        with _taken(), self._socket:
            self._server.run([self._socket])

    def _tell(self, warm: Callable[[], None]) -> None:
        self.ready.wait()
        warm()

    def stop(self) -> None:
        """Stop like a signal would; callable from any thread."""
        self._server.should_exit = True


def _listening(host: str, port: int) -> socket.socket:
    """A listening socket marked as TCP, unlike ``create_server``'s, since only then does asyncio set TCP_NODELAY."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(1024)
    except OSError as error:
        made.close()
        raise OSError(error.errno, f"{error.strerror} (while attempting to listen at {host}, port {port})") from None
    return made


@contextlib.contextmanager
def _taken() -> Iterator[None]:
    """Absorb the signals that uvicorn re-raises after a shutdown, so that the process exits cleanly."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda *_: None) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
