"""Smaller filters: which to take away, and from how many layers."""

from fluidjax.contrib.slim.prune import auto_prune_strategy as auto_prune_strategy
from fluidjax.contrib.slim.prune import prune_strategy as prune_strategy
from fluidjax.contrib.slim.prune import pruner as pruner
from fluidjax.contrib.slim.prune.auto_prune_strategy import AutoPruneStrategy
from fluidjax.contrib.slim.prune.prune_strategy import PruneStrategy, SensitivePruneStrategy, UniformPruneStrategy
from fluidjax.contrib.slim.prune.pruner import Pruner, StructurePruner

__all__ = [
    "AutoPruneStrategy",
    "PruneStrategy",
    "Pruner",
    "SensitivePruneStrategy",
    "StructurePruner",
    "UniformPruneStrategy",
]
