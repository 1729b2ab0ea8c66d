"""The server's statistics, in Prometheus format."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST as MEDIA
from prometheus_client.exposition import generate_latest

__all__ = ["MEDIA", "Metrics"]


class Metrics:
    """Statistics of one server.

    Args:
        waiting: returns the current number of requests.
    """

    def __init__(self, waiting: Callable[[], int]):
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "fluidjax_requests", "Requests for predictions, by the status of their answer.", ["status"],
            registry=self._registry,
        )  # fmt: skip
        self._seconds = Histogram(
            "fluidjax_request_seconds", "From a request's arrival to its answer.", registry=self._registry
        )
        self._samples = Histogram(
            "fluidjax_batch_samples", "Samples computed at once.", buckets=[1 << n for n in range(11)],
            registry=self._registry,
        )  # fmt: skip
        self._runs = Histogram("fluidjax_run_seconds", "What running the model took.", registry=self._registry)
        queue = Gauge("fluidjax_requests_waiting", "Requests that wait or run.", registry=self._registry)
        queue.set_function(waiting)

    def ran(self, samples: int, seconds: float) -> None:
        """Record a run with its number of samples and duration."""
        self._samples.observe(samples)
        self._runs.observe(seconds)

    def answered(self, status: int, seconds: float) -> None:
        """Record an answered request."""
        self._requests.labels(str(status)).inc()
        self._seconds.observe(seconds)

    def text(self) -> bytes:
        """All statistics."""
        return generate_latest(self._registry)
