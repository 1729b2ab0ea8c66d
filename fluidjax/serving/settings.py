"""The settings of a server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Settings:
    """Limits of a server.

    Attributes:
        max_batch: maximum number of samples per batch; 1 disables batching.
        max_delay: seconds for which a request waits for others to be batched with.
        max_body: maximum size of a request in bytes, also after unpacking.
        timeout: seconds from the arrival of a request to its answer.
        queue: maximum number of concurrent requests; further ones are told to retry.
        token: the token required of requests; "" for none.
        shapes: complete shapes of inputs with unknown dimensions besides the first, for warming up.
    """

    max_batch: int = 32
    max_delay: float = 0.002
    max_body: int = 16_000_000
    timeout: float = 30.0
    queue: int = 128
    token: str = ""
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
