"""Making models smaller: ``quantization``."""

from fluidjax.contrib.slim import quantization as quantization
