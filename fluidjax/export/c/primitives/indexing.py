"""gather and scatter, with XLA's dimension numbers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
from jax.lax import GatherScatterMode

from fluidjax.export.c.affine import Affine, Index, address, strides_of
from fluidjax.export.c.kernel import Kernel
from fluidjax.export.c.primitives.joining import copied
from fluidjax.export.c.primitives.reductions import combined
from fluidjax.export.c.rules import kernel
from fluidjax.export.c.types import literal
from fluidjax.export.graph import Node, Value


class _Slices:
    """Where the slices of a gather or scatter start in the operand."""

    def __init__(self, k: Kernel, operand: Value, indices: Value, mode: GatherScatterMode, sizes: list[int]):
        self.k, self.operand, self.indices, self.mode, self.sizes = k, operand, indices, mode, sizes

    def begins(self, batch: Index, index_map: tuple[int, ...], batching: dict[int, int]) -> tuple[list[Affine], str]:
        """(first index in each operand dim, condition for the slice to lie inside; "" if it always does).

        Args:
            batch: the index of the slice: all dims of the indices but the last.
            index_map: the operand dim that each number of an index refers to.
            batching: operand dim -> the dim of the indices that it is paired with.
        """
        found = [Affine() for _ in self.operand.shape]
        conditions = []
        for at, dim in enumerate(index_map):
            room = self.operand.shape[dim] - self.sizes[dim]
            word = self.k.name("b")
            number = self.k.number(self.indices, [*batch, Affine.of(at)])
            if self._drops:
                self.k.line(f"const long {word} = {number};")
                conditions.append(f"{word} >= 0 && {word} <= {room}")
            else:
                self.k.line(f"const long {word} = clamp_long({number}, {room});")
            found[dim] = Affine.of(word)
        for dim, source in batching.items():
            found[dim] = batch[source]
        return found, " && ".join(conditions)

    @property
    def _drops(self) -> bool:
        return self.mode == GatherScatterMode.FILL_OR_DROP


@kernel("gather")
def gather(k: Kernel, node: Node) -> None:
    """Slices of the operand, one per index."""
    operand, indices = node.ins
    p, out = node.params, node.outs[0]
    numbers, sizes = p["dimension_numbers"], list(p["slice_sizes"])
    to = k.target(out)
    offset = numbers.offset_dims
    batch_dims = [d for d in range(len(out.shape)) if d not in offset]
    hidden = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    window = [d for d in range(len(operand.shape)) if d not in hidden]
    batching = dict(zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True))
    slices = _Slices(k, operand, indices, GatherScatterMode.from_any(p["mode"]), sizes)
    strides = strides_of(out.shape)
    if not out.size:
        return
    with k.nest([out.shape[d] for d in batch_dims]) as batch:
        begins, inside = slices.begins(batch, numbers.start_index_map, batching)
        with k.nest([out.shape[d] for d in offset]) as rest:
            at = list(begins)
            for dim, i in zip(window, rest, strict=True):
                at[dim] = at[dim] + i
            where = address([*batch, *rest], [strides[d] for d in (*batch_dims, *offset)])
            value = k.element(operand, at)
            filled = literal(_fill(p["fill_value"], out.dtype), out.dtype)
            k.line(f"{to}[{where}] = {f'({inside}) ? {value} : {filled}' if inside else value};")


def _fill(value: object, dtype: np.dtype) -> object:
    """The value of an element outside; the default of ``jax.numpy`` if none is given."""
    if value is not None:
        return value
    if dtype.kind == "f":
        return np.nan
    if dtype.kind == "i":
        return np.iinfo(dtype).min
    return True if dtype.kind == "b" else np.iinfo(dtype).max


_WORDS = {"scatter": "", "scatter-add": "sum", "scatter_add": "sum", "scatter-mul": "prod", "scatter_mul": "prod",
          "scatter-max": "max", "scatter_max": "max", "scatter-min": "min", "scatter_min": "min"}  # fmt: skip


@kernel(*_WORDS, streams=(2,), updates=0)
def scatter(k: Kernel, node: Node) -> None:
    """Combine slices of the updates with the operand, in order."""
    operand, indices, updates = node.ins
    numbers, word = node.params["dimension_numbers"], _WORDS[node.prim]
    out, dtype = k.target(node.outs[0]), operand.dtype
    copied(k, node.outs[0], operand)
    windows = numbers.update_window_dims
    hidden = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    shown = [d for d in range(len(operand.shape)) if d not in hidden]
    sizes = [1] * len(operand.shape)
    for dim, source in zip(shown, windows, strict=True):
        sizes[dim] = updates.shape[source]
    batch_dims = [d for d in range(len(updates.shape)) if d not in windows]
    batching = dict(zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True))
    slices = _Slices(k, operand, indices, GatherScatterMode.from_any(node.params["mode"]), sizes)
    strides = strides_of(operand.shape)
    if not updates.size:
        return
    with k.nest([updates.shape[d] for d in batch_dims]) as batch:
        begins, inside = slices.begins(batch, numbers.scatter_dims_to_operand_dims, batching)
        with _where(k, inside), k.nest([updates.shape[d] for d in windows]) as rest:
            at, source = list(begins), [Affine()] * len(updates.shape)
            for dim, i in zip(shown, rest, strict=True):
                at[dim] = at[dim] + i
            for dim, i in zip((*batch_dims, *windows), (*batch, *rest), strict=True):
                source[dim] = i
            cell, value = f"{out}[{address(at, strides)}]", k.element(updates, source)
            k.line(f"{cell} = {combined(word, dtype, cell, value) if word else value};")


@contextlib.contextmanager
def _where(k: Kernel, condition: str) -> Iterator[None]:
    if not condition:
        yield
        return
    with k.block(f"if ({condition})"):
        yield
