"""Which parts of a parameter to take away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fluidjax.base.errors import explain

__all__ = ["Pruner", "StructurePruner"]


class Pruner:
    """Base class of pruners."""

    def prune(self, param: Any) -> Any:
        """To be overridden."""


class StructurePruner(Pruner):
    """Takes whole slices of a parameter along an axis away, the ones with the smallest criterion.

    Args:
        pruning_axis: parameter name to the axis along which its slices lie; "*" for all others.
        criterions: parameter name to a criterion; "*" for all others. "l1_norm", the sum of magnitudes, is the one
            that there is.
    """

    def __init__(self, pruning_axis: Mapping[str, int], criterions: Mapping[str, str]):
        self.pruning_axis = pruning_axis
        self.criterions = criterions

    def cal_pruned_idx(self, name: str, param: np.ndarray, ratio: float, axis: int | None = None) -> np.ndarray:
        """The indices of round(n * ratio) of the n slices along ``axis``, or along the parameter's own axis.

        Raises ValueError for an unknown criterion.
        """
        criterion = self.criterions[name] if name in self.criterions else self.criterions["*"]
        if criterion != "l1_norm":
            raise ValueError(explain(f"a criterion to prune {name}", "l1_norm", repr(criterion), "write 'l1_norm'"))
        if axis is None:
            axis = self.pruning_axis[name] if name in self.pruning_axis else self.pruning_axis["*"]
        others = tuple(i for i in range(param.ndim) if i != axis)
        norms = np.sum(np.abs(param), axis=others)
        return norms.argsort()[: round(param.shape[axis] * ratio)]

    def prune_tensor(
        self, tensor: np.ndarray, pruned_idx: Sequence[int] | np.ndarray, pruned_axis: int, lazy: bool = False
    ) -> np.ndarray:
        """The array without the slices ``pruned_idx`` along ``pruned_axis``; with zeros in them if ``lazy``."""
        if not lazy:
            return np.delete(tensor, pruned_idx, pruned_axis)
        zeroed = np.array(tensor)
        zeroed[(slice(None),) * pruned_axis + (pruned_idx,)] = 0
        return zeroed
