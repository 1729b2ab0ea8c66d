"""Weight decay: ops that add a penalty's gradient to a parameter's gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fluidjax.framework import Block, Variable


class WeightDecayRegularizer:
    """What all regularizers are."""

    def __call__(self, param: Variable, grad: Variable, block: Block) -> Any:
        """Write the gradient of the penalty on `param`."""
        raise TypeError(f"{type(self).__name__} adds no penalty. Use L1Decay or L2Decay.")

    def __str__(self) -> str:
        return type(self).__name__
