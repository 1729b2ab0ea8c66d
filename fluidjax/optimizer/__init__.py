"""Optimizers: what turns a loss into the ops of a training step."""

from fluidjax.base.unknown import unknown_name
from fluidjax.clip import append_gradient_clip_ops
from fluidjax.optimizer.adam import Adam, Adamax, AdamaxOptimizer, AdamOptimizer, Lamb, LambOptimizer
from fluidjax.optimizer.adaptive import (
    Adadelta,
    AdadeltaOptimizer,
    Adagrad,
    AdagradOptimizer,
    DecayedAdagrad,
    DecayedAdagradOptimizer,
    Ftrl,
    FtrlOptimizer,
    RMSProp,
    RMSPropOptimizer,
)
from fluidjax.optimizer.average import ExponentialMovingAverage, ModelAverage
from fluidjax.optimizer.base import Optimizer
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
from fluidjax.regularizer import append_regularization_ops

__all__ = [
    "SGD", "Adadelta", "AdadeltaOptimizer", "Adagrad", "AdagradOptimizer", "Adam", "AdamOptimizer", "Adamax",
    "AdamaxOptimizer", "DGCMomentumOptimizer", "DecayedAdagrad", "DecayedAdagradOptimizer", "Dpsgd", "DpsgdOptimizer",
    "ExponentialMovingAverage", "LookaheadOptimizer", "ModelAverage", "PipelineOptimizer",
    "Ftrl", "FtrlOptimizer", "Lamb", "LambOptimizer", "LarsMomentum", "LarsMomentumOptimizer", "Momentum",
    "MomentumOptimizer", "Optimizer", "RMSProp", "RMSPropOptimizer", "RecomputeOptimizer", "SGDOptimizer",
    "append_gradient_clip_ops", "append_regularization_ops",
]  # fmt: skip

__getattr__ = unknown_name(__name__)
