"""Optimizers of the pslib library."""

from fluidjax.base.unbuilt import unbuilt

__all__ = ["DistributedAdam"]

DistributedOptimizerImplBase = unbuilt(__name__, "DistributedOptimizerImplBase")
DistributedAdam = unbuilt(__name__, "DistributedAdam")
