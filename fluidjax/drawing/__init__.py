"""Pictures as SVG, drawn without any program besides Python: the forward pass of a program; training curves."""

from fluidjax.drawing.curves import Curves
from fluidjax.drawing.svg import Drawing, draw

__all__ = ["Curves", "Drawing", "draw"]
