"""Model compression: a Compressor, and strategies that prune, quantize, distill and search."""

from fluidjax.contrib.slim import core as core
from fluidjax.contrib.slim import distillation as distillation
from fluidjax.contrib.slim import graph as graph
from fluidjax.contrib.slim import nas as nas
from fluidjax.contrib.slim import prune as prune
from fluidjax.contrib.slim import quantization as quantization
from fluidjax.contrib.slim import searcher as searcher
from fluidjax.contrib.slim.core import Compressor

__all__ = ["Compressor"]
