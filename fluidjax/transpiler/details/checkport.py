"""Waiting for servers."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Sequence

_log = logging.getLogger(__name__)
_FIRST_PAUSE, _PAUSE, _TIMEOUT = 0.1, 3.0, 2.0


def _listens(endpoint: str) -> bool:
    host, port = endpoint.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), _TIMEOUT).close()
    except OSError:
        return False
    return True


def wait_server_ready(endpoints: Sequence[str]) -> None:
    """Wait until every endpoint, ``host:port``, accepts connections, retrying at up to 3 s intervals without limit."""
    assert not isinstance(endpoints, str), "wait_server_ready: expected a list of host:port, got a str. Split it."
    pause = _FIRST_PAUSE
    while missing := [endpoint for endpoint in endpoints if not _listens(endpoint)]:
        if pause >= 1:
            _log.warning("not listening yet: %s; looking again in %g s", ", ".join(missing), pause)
        time.sleep(pause)
        pause = min(2 * pause, _PAUSE)
