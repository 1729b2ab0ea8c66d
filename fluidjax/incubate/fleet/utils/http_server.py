"""A server of keys and values, where the processes of a fleet meet."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from fluidjax.base.flags import flag

_logger = logging.getLogger(__name__)
_MAX_VALUE = 1 << 20


class KVHandler(BaseHTTPRequestHandler):
    """Answers GET, PUT and DELETE of /SCOPE/KEY: read a value, write one, say that a key is not needed any more.

    Status 200 is success, 404 a key that is not there, 400 a path or length that is none, 413 a value of over 1 MiB.
    """

    server: KVHTTPServer
    timeout = 60  # of a peer that is silent within a request

    def do_GET(self) -> None:
        """Send the value of a key."""
        place = self._place()
        if place is not None:
            value = self.server.read(*place)
            self._answer(404 if value is None else 200, value or b"")

    def do_PUT(self) -> None:
        """Write a key's value: the body."""
        place = self._place()
        length = self.headers.get("Content-Length", "")
        if place is None:
            return
        if not length.isdecimal():
            self._refuse(400, f"Content-Length {length!r}")
        elif int(length) > _MAX_VALUE:
            self._refuse(413, f"a value of {length} bytes")
        else:
            self.server.write(*place, self.rfile.read(int(length)))
            self._answer(200)

    def do_DELETE(self) -> None:
        """Count a key as deleted. Its value stays readable for processes that come later."""
        place = self._place()
        if place is not None:
            self.server.delete(*place)
            self._answer(200)

    def _place(self) -> tuple[str, str] | None:
        """The scope and the key of the path; where it has none, the request is answered with 400."""
        parts = self.path.split("/")
        if len(parts) == 3:
            return parts[1], parts[2]
        self._refuse(400, "expected a path /SCOPE/KEY")
        return None

    def _refuse(self, code: int, reason: str) -> None:
        _logger.warning("%s %s of %s: %s", self.command, self.path, self.address_string(), reason)
        self.close_connection = True
        self._answer(code)

    def send_status_code(self, code: int) -> None:
        """Answer with a status and nothing else."""
        self._answer(code)

    def _answer(self, code: int, value: bytes = b"") -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(value)))
        self.end_headers()
        self.wfile.write(value)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged one by one."""


class KVHTTPServer(ThreadingHTTPServer):
    """Keys and values of scopes served by HTTP on 127.0.0.1 unless FLAGS_rpc_bind names another address.

    Args:
        port: of the server; 0 for any that is free.
        handler: the class that answers requests.
    """

    daemon_threads = True

    def __init__(self, port: int, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__((flag("FLAGS_rpc_bind") or "127.0.0.1", port), handler)
        self._lock = threading.Lock()
        self._values: dict[str, dict[str, bytes]] = {}
        self._deleted: dict[str, set[str]] = {}

    def read(self, scope: str, key: str) -> bytes | None:
        """The value of a key, or None."""
        with self._lock:
            return self._values.get(scope, {}).get(key)

    def write(self, scope: str, key: str, value: bytes) -> None:
        """Set the value of a key."""
        with self._lock:
            self._values.setdefault(scope, {})[key] = value

    def delete(self, scope: str, key: str) -> None:
        """Count a key as deleted."""
        with self._lock:
            self._deleted.setdefault(scope, set()).add(key)

    def get_deleted_size(self, key: str) -> int:
        """How many keys of a scope are deleted."""
        with self._lock:
            return len(self._deleted.get(key, ()))


class KVServer:
    """A ``KVHTTPServer`` in a thread of its own.

    Args:
        port: of the server.
        size: how many keys of each scope are to be deleted before the server is not needed any more.
    """

    def __init__(self, port: int, size: Mapping[str, int] = {}) -> None:  # noqa: B006 - Fluid's default
        self.http_server = KVHTTPServer(port, KVHandler)
        self.listen_thread = threading.Thread(target=self.http_server.serve_forever, daemon=True)
        self.size = dict(size)

    def start(self) -> None:
        """Begin to answer."""
        self.listen_thread.start()

    def stop(self) -> None:
        """Answer no more, and free the port."""
        self.http_server.shutdown()
        self.listen_thread.join()
        self.http_server.server_close()

    def shoud_stop(self) -> bool:
        """Whether all keys are deleted (the name is Fluid's)."""
        return all(self.http_server.get_deleted_size(scope) == size for scope, size in self.size.items())
