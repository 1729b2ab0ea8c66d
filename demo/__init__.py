"""The demo: a Fluid convolutional net learns handwritten digits (``make demo``)."""
