"""How much a trainer and its servers have said."""

from __future__ import annotations

import threading


class Traffic:
    """Bytes sent to and received from servers, and the number of requests."""

    def __init__(self) -> None:
        self.sent = self.received = self.requests = 0
        self._lock = threading.Lock()

    def count(self, sent: int = 0, received: int = 0, requests: int = 0) -> None:
        """Add to the numbers; threads that do so at once lose nothing."""
        with self._lock:
            self.sent, self.received = self.sent + sent, self.received + received
            self.requests += requests

    def __repr__(self) -> str:
        return f"<{self.requests} requests, {self.sent} bytes sent, {self.received} bytes received>"
