"""Learning from a trained network."""

from fluidjax.contrib.slim.distillation import distillation_strategy as distillation_strategy
from fluidjax.contrib.slim.distillation import distiller as distiller
from fluidjax.contrib.slim.distillation.distillation_strategy import DistillationStrategy
from fluidjax.contrib.slim.distillation.distiller import FSPDistiller, L2Distiller, SoftLabelDistiller

__all__ = ["DistillationStrategy", "FSPDistiller", "L2Distiller", "SoftLabelDistiller"]
