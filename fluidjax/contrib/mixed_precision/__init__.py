"""Mixed precision: a program that computes in 16 bits where that is safe, with the loss scaled against underflow."""

from fluidjax.contrib.mixed_precision import decorator, fp16_lists, fp16_utils
from fluidjax.contrib.mixed_precision.decorator import OptimizerWithMixedPrecision, decorate
from fluidjax.contrib.mixed_precision.fp16_lists import AutoMixedPrecisionLists

__all__ = [
    "AutoMixedPrecisionLists",
    "OptimizerWithMixedPrecision",
    "decorate",
    "decorator",
    "fp16_lists",
    "fp16_utils",
]
