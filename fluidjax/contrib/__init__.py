"""Fluid's contributed parts."""

from fluidjax.contrib import mixed_precision as mixed_precision
from fluidjax.contrib.mixed_precision import AutoMixedPrecisionLists as AutoMixedPrecisionLists
from fluidjax.contrib.mixed_precision import decorate as decorate
