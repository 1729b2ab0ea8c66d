"""``paddle.tensor.io``: parameters as files."""

from fluidjax.io import load, save

__all__ = ["load", "save"]
