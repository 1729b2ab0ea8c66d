"""Rounding a saved model: by what it computes of some samples, or its weights alone."""

from fluidjax.contrib.slim.quantization.samples import PostTrainingQuantization
from fluidjax.contrib.slim.quantization.weights import WeightQuantization

__all__ = ["PostTrainingQuantization", "WeightQuantization"]
