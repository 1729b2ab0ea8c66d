"""The forward pass of a program as a picture: an SVG, drawn without any program besides Python."""

from fluidjax.drawing.svg import Drawing, draw

__all__ = ["Drawing", "draw"]
