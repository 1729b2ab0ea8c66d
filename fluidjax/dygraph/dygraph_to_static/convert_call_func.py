"""What converted code calls in place of a function."""

from __future__ import annotations

from fluidjax.to_static.staged import call as convert_call

__all__ = ["convert_call"]
