"""Quantization: passes over an IrGraph for training and inference, and post-training quantization."""

from fluidjax.contrib.slim.quantization import post_training_quantization as post_training_quantization
from fluidjax.contrib.slim.quantization import quantization_pass as quantization_pass
from fluidjax.contrib.slim.quantization import quantization_strategy as quantization_strategy
from fluidjax.contrib.slim.quantization.post_training_quantization import PostTrainingQuantization, WeightQuantization
from fluidjax.contrib.slim.quantization.quantization_pass import (
    AddQuantDequantPass,
    ConvertToInt8Pass,
    OutScaleForInferencePass,
    OutScaleForTrainingPass,
    QuantizationFreezePass,
    QuantizationTransformPass,
    TransformForMobilePass,
)
from fluidjax.contrib.slim.quantization.quantization_strategy import QuantizationStrategy

__all__ = [
    "AddQuantDequantPass",
    "ConvertToInt8Pass",
    "OutScaleForInferencePass",
    "OutScaleForTrainingPass",
    "PostTrainingQuantization",
    "QuantizationFreezePass",
    "QuantizationStrategy",
    "QuantizationTransformPass",
    "TransformForMobilePass",
    "WeightQuantization",
]
