"""A key-value server used for rendezvous of the processes of a fleet."""

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
    """Handles GET, PUT and DELETE of /SCOPE/KEY: read a value, write one, mark a key as no longer needed.

    Status 200 is success, 404 an unknown key, 400 an invalid path or length, 413 a value larger than 1 MiB.
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
        """Set the value of a key to the body."""
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
        """Mark a key as deleted. Its value remains readable for processes that come later."""
        place = self._place()
        if place is not None:
            self.server.delete(*place)
            self._answer(200)

    def _place(self) -> tuple[str, str] | None:
        """The scope and key in the path; if invalid, the request is answered with 400."""
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
        """Send a response with only a status."""
        self._answer(code)

    def _answer(self, code: int, value: bytes = b"") -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(value)))
        self.end_headers()
        self.wfile.write(value)

    def log_message(self, format: str, *args: Any) -> None:
        """Do nothing: individual requests are not logged."""


class KVHTTPServer(ThreadingHTTPServer):
    """Serves keys and values over HTTP, on 127.0.0.1 unless FLAGS_rpc_bind names another address.

    Args:
        port: port of the server; 0 for any free one.
        handler: the class that handles requests.
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
        """Mark a key as deleted."""
        with self._lock:
            self._deleted.setdefault(scope, set()).add(key)

    def get_deleted_size(self, key: str) -> int:
        """The number of deleted keys in a scope."""
        with self._lock:
            return len(self._deleted.get(key, ()))


class KVServer:
    """A ``KVHTTPServer`` running in a thread.

    Args:
        port: of the server.
        size: number of keys of each scope to be deleted before the server is no longer needed.
    """

    def __init__(self, port: int, size: Mapping[str, int] = {}) -> None:  # noqa: B006 - Fluid's default
        self.http_server = KVHTTPServer(port, KVHandler)
        self.listen_thread = threading.Thread(target=self.http_server.serve_forever, daemon=True)
        self.size = dict(size)

    def start(self) -> None:
        """Start serving."""
        self.listen_thread.start()

    def stop(self) -> None:
        """Stop serving, and free the port."""
        self.http_server.shutdown()
        self.listen_thread.join()
        self.http_server.server_close()

    def shoud_stop(self) -> bool:
        """Whether all keys are deleted (the spelling is Fluid's)."""
        return all(self.http_server.get_deleted_size(scope) == size for scope, size in self.size.items())
