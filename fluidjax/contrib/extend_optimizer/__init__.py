"""Optimizers with decoupled weight decay."""

from fluidjax.contrib.extend_optimizer import (
    extend_optimizer_with_weight_decay as extend_optimizer_with_weight_decay,
)
from fluidjax.contrib.extend_optimizer.extend_optimizer_with_weight_decay import (
    extend_with_decoupled_weight_decay,
)

__all__ = ["extend_with_decoupled_weight_decay"]
