"""Learning-rate schedules, passed to an optimizer as its learning rate."""

from __future__ import annotations

from fluidjax.layers._schedules.base import LearningRateDecay  # noqa: F401
from fluidjax.layers._schedules.epochs import (  # noqa: F401
    LambdaDecay,
    MultiStepDecay,
    ReduceLROnPlateau,
    StepDecay,
    _LearningRateEpochDecay,
)
from fluidjax.layers._schedules.steps import (
    CosineDecay,
    ExponentialDecay,
    InverseTimeDecay,
    LinearLrWarmup,
    NaturalExpDecay,
    NoamDecay,
    PiecewiseDecay,
    PolynomialDecay,
)

__all__ = [
    "NoamDecay", "PiecewiseDecay", "NaturalExpDecay", "ExponentialDecay", "InverseTimeDecay", "PolynomialDecay",
    "CosineDecay", "LinearLrWarmup", "ReduceLROnPlateau", "StepDecay", "MultiStepDecay", "LambdaDecay",
]  # fmt: skip
