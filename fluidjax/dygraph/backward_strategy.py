"""The order in which gradients are summed, under Fluid's name."""

from __future__ import annotations

from fluidjax.eager.backward.strategy import BackwardStrategy

__all__ = ["BackwardStrategy"]
