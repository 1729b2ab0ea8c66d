"""Mixed precision: computation in 16 bits where that is safe, with loss scaling against underflow."""

from fluidjax.contrib.mixed_precision import decorator as decorator
from fluidjax.contrib.mixed_precision import fp16_lists as fp16_lists
from fluidjax.contrib.mixed_precision import fp16_utils as fp16_utils
from fluidjax.contrib.mixed_precision.decorator import OptimizerWithMixedPrecision as OptimizerWithMixedPrecision
from fluidjax.contrib.mixed_precision.decorator import decorate
from fluidjax.contrib.mixed_precision.fp16_lists import AutoMixedPrecisionLists

__all__ = ["AutoMixedPrecisionLists", "decorate"]
