"""Quantization of a saved model: calibrated on samples, or of its weights alone."""

from fluidjax.contrib.slim.quantization.samples import PostTrainingQuantization
from fluidjax.contrib.slim.quantization.weights import WeightQuantization

__all__ = ["PostTrainingQuantization", "WeightQuantization"]
