"""Drawing SVGs in pure Python: the forward pass of a program, and training curves."""

from fluidjax.drawing.curves import Curves
from fluidjax.drawing.svg import Drawing, draw

__all__ = ["Curves", "Drawing", "draw"]
