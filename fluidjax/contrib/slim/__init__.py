"""Model compression: ``quantization``."""

from fluidjax.contrib.slim import quantization as quantization

__all__: list[str] = []  # the compressor is not built
