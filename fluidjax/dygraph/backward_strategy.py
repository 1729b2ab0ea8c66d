"""How gradients are summed, where Fluid has it."""

from __future__ import annotations

from fluidjax.eager.strategy import BackwardStrategy

__all__ = ["BackwardStrategy"]
