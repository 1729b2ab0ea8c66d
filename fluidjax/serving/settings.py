"""What a server allows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Settings:
    """Limits of a server.

    Attributes:
        max_batch: the most samples that are computed at once; 1: each request alone.
        max_delay: seconds that a request waits for others to be computed with.
        max_body: the most bytes of a request, and of what it unpacks to.
        timeout: seconds from a request's arrival to its answer.
        queue: the most requests at a time; more are told to come back.
        token: what requests have to show; "": nothing.
        shapes: whole shapes of inputs that leave more open than their first dim, for warming up.
    """

    max_batch: int = 32
    max_delay: float = 0.002
    max_body: int = 16_000_000
    timeout: float = 30.0
    queue: int = 128
    token: str = ""
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
