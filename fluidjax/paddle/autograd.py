"""``paddle.autograd``: ops whose gradient is a Python function."""

from __future__ import annotations

from fluidjax.eager.py_layer import PyLayer, PyLayerContext

__all__ = ["PyLayer", "PyLayerContext"]
