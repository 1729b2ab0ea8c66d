"""``fluid.concurrency`` of Fluid 0.12 and 0.13: threads and channels as ops. The names import, and tell what to do."""

from __future__ import annotations

from typing import Any

from fluidjax.base.older import older
from fluidjax.base.unknown import UnknownName


def __getattr__(name: str) -> Any:
    found = older("fluidjax", name)
    if found is None:
        raise UnknownName(__name__, name)
    return found
