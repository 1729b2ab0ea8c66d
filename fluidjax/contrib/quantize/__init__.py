"""Quantization-aware training of a Program."""

from fluidjax.contrib.quantize.quantize_transpiler import QuantizeTranspiler as QuantizeTranspiler

__all__ = ["QuantizeTranspiler"]
