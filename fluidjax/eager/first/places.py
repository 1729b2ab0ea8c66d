"""Gather and scatter: windows of an array at positions given by other arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.lax import GatherScatterMode

from fluidjax.eager.first.notation import Equation, Function, Make

_CLIP, _FILL = GatherScatterMode.CLIP, GatherScatterMode.FILL_OR_DROP


class _Windows:
    """The positions of windows in an array of this shape.

    Args:
        sizes: the window's, in every dimension of the array.
        places: the shape of an index array without the last dimension.
        mapped: the dimension of the array that each number of an index refers to.
        beside: pairs of a dimension of the array and one of the index array that vary together.
    """

    def __init__(
        self,
        shape: Sequence[int],
        sizes: Sequence[int],
        places: Sequence[int],
        mapped: Sequence[int],
        beside: Sequence[tuple[int, int]],
    ) -> None:
        self.mapped, self.count = list(mapped), int(np.prod(places))
        self.room = np.array(shape, np.int64) - np.array(sizes, np.int64)
        self.base = np.zeros((self.count, len(shape)), np.int64)
        for dim, place in beside:
            self.base[:, dim] = np.indices(places)[place].reshape(-1)
        rank = len(shape)
        self.axes = [np.arange(n).reshape([1] + [n if k == d else 1 for k in range(rank)]) for d, n in enumerate(sizes)]

    def starts(self, indices: Any) -> tuple[Any, Any]:
        """([window, dimension] where windows begin, clamped so that they fit; [window] whether they did fit)."""
        starts = self.base.copy()
        starts[:, self.mapped] = indices.reshape(self.count, len(self.mapped))
        inside = np.minimum(np.maximum(starts, 0), self.room)
        return inside, (starts == inside).all(axis=1)

    def indices(self, starts: Any) -> tuple[Any, ...]:
        """The indices of the elements of windows that begin there: [window, *sizes]."""
        rank = len(self.axes)
        return tuple([starts[:, d].reshape(-1, *[1] * rank) + axis for d, axis in enumerate(self.axes)])


def _gather(eqn: Equation) -> Function | None:
    numbers, params = eqn.params["dimension_numbers"], eqn.params
    if eqn.ins[1].dtype.kind not in "iu":
        return None
    mode, places = params["mode"], eqn.ins[1].shape[:-1]
    beside = list(zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True))
    windows = _Windows(eqn.ins[0].shape, params["slice_sizes"], places, numbers.start_index_map, beside)
    gone = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    kept = [n for d, n in enumerate(params["slice_sizes"]) if d not in gone]
    order = _order(len(eqn.shape), numbers.offset_dims)
    fill = params["fill_value"] if mode == _FILL else None
    if mode == _FILL and fill is None:
        return None

    def gather(x: Any, indices: Any) -> Any:
        starts, inside = windows.starts(indices)
        found = x[windows.indices(starts)]
        if fill is not None and not inside.all():
            found[~inside] = fill
        return found.reshape(*places, *kept).transpose(order)

    return gather


def _order(rank: int, offsets: Sequence[int]) -> list[int]:
    """For each dimension of a result, its number if those of positions precede those of windows."""
    places = [d for d in range(rank) if d not in offsets]
    return [(*places, *offsets).index(d) for d in range(rank)]


def _scatter(combine: Function | None) -> Make:
    """Updates of windows in sequence, combined with the existing values; None: they replace them."""

    def make(eqn: Equation) -> Function | None:
        numbers, mode = eqn.params["dimension_numbers"], eqn.params["mode"]
        operand, indices, updates = eqn.ins
        if indices.dtype.kind not in "iu" or (combine is not None and operand.dtype == np.bool_):
            return None
        places = indices.shape[:-1]
        beside = list(zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True))
        gone = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
        inner = iter([updates.shape[d] for d in numbers.update_window_dims])
        sizes = [1 if d in gone else next(inner) for d in range(len(operand.shape))]
        windows = _Windows(operand.shape, sizes, places, numbers.scatter_dims_to_operand_dims, beside)
        rank = len(updates.shape)
        outer = [d for d in range(rank) if d not in numbers.update_window_dims]
        order, shape = [*outer, *numbers.update_window_dims], (windows.count, *sizes)

        def scatter(x: Any, indices: Any, updates: Any) -> Any:
            result = np.array(x)
            starts, inside = windows.starts(indices)
            parts = updates.transpose(order).reshape(shape)
            if mode != _CLIP and not inside.all():
                starts, parts = starts[inside], parts[inside]
            at = windows.indices(starts)
            if combine is None:
                result[at] = parts
            else:
                combine.at(result, at, parts)  # type: ignore[attr-defined]
            return result

        return scatter

    return make


PRIMITIVES: dict[str, Make] = {
    "gather": _gather,
    "scatter": _scatter(None),
    "scatter-add": _scatter(np.add),
    "scatter-max": _scatter(np.maximum),
    "scatter-min": _scatter(np.minimum),
    "scatter-mul": _scatter(np.multiply),
    "scatter-sub": _scatter(np.subtract),
}
