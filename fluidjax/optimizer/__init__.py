"""Optimizers: append the ops of a training step to the program of a loss."""

from fluidjax.base.unknown import unknown_name
from fluidjax.clip import append_gradient_clip_ops as append_gradient_clip_ops
from fluidjax.optimizer.adam import Adam, Adamax, AdamaxOptimizer, AdamOptimizer, LambOptimizer
from fluidjax.optimizer.adam import Lamb as Lamb
from fluidjax.optimizer.adaptive import (
    Adadelta,
    AdadeltaOptimizer,
    Adagrad,
    AdagradOptimizer,
    DecayedAdagrad,
    DecayedAdagradOptimizer,
    Ftrl,
    FtrlOptimizer,
    RMSPropOptimizer,
)
from fluidjax.optimizer.adaptive import RMSProp as RMSProp
from fluidjax.optimizer.average import ExponentialMovingAverage, ModelAverage
from fluidjax.optimizer.base import Optimizer as Optimizer
from fluidjax.optimizer.descent import (
    SGD,
    DGCMomentumOptimizer,
    Dpsgd,
    DpsgdOptimizer,
    LarsMomentum,
    LarsMomentumOptimizer,
    Momentum,
    MomentumOptimizer,
    SGDOptimizer,
)
from fluidjax.optimizer.lookahead import LookaheadOptimizer
from fluidjax.optimizer.pipeline import PipelineOptimizer
from fluidjax.optimizer.recompute import RecomputeOptimizer
from fluidjax.regularizer import append_regularization_ops as append_regularization_ops

__all__ = [
    "SGD", "Adadelta", "AdadeltaOptimizer", "Adagrad", "AdagradOptimizer", "Adam", "AdamOptimizer", "Adamax",
    "AdamaxOptimizer", "DGCMomentumOptimizer", "DecayedAdagrad", "DecayedAdagradOptimizer", "Dpsgd", "DpsgdOptimizer",
    "ExponentialMovingAverage", "LookaheadOptimizer", "ModelAverage", "PipelineOptimizer",
    "Ftrl", "FtrlOptimizer", "LambOptimizer", "LarsMomentum", "LarsMomentumOptimizer", "Momentum",
    "MomentumOptimizer", "RMSPropOptimizer", "RecomputeOptimizer", "SGDOptimizer",
]  # fmt: skip

__getattr__ = unknown_name(__name__)
