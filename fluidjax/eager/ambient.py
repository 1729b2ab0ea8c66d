"""Eager mode outside any guard: for tensors that are eager wherever they are used."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from fluidjax.base.mode import current_tracer, tracer_guard
from fluidjax.eager.tracer import Tracer

_tracer: Tracer | None = None


@contextlib.contextmanager
def eager() -> Iterator[Any]:
    """Run ops immediately inside: under the active guard or, without one, under a tracer kept for this purpose."""
    global _tracer
    tracer = current_tracer()
    if tracer is not None:
        yield tracer
        return
    _tracer = _tracer or Tracer()
    with tracer_guard(_tracer):
        yield _tracer
