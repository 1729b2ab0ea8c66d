"""The tracer under the name that Fluid has for it."""

from __future__ import annotations

from fluidjax.eager.tracer import Tracer

__all__ = ["Tracer"]
