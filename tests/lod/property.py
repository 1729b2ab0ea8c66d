"""Running one op on the same ragged values in several paddings, forward and gradient op apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import lowering
from lowering.dtypes import is_float
from lowering.engine.call import call
from lowering.engine.context import Context, special
from lowering.engine.runner import Runner
from lowering.program import GRAD, BlockView, OpView, ProgramView
from lowering.sizes.counts import plain
from lowering.values import LoDArray, SelectedRows

FILLS = ("first", "last")


@dataclass(frozen=True)
class Rows:
    """A ragged input: ``shape`` of a row; ``lod`` names the draw of offsets that it shares with others.

    ``below`` makes it ids in [0, below); ``positive`` keeps floats above a half.
    """

    shape: tuple[int, ...] = (3,)
    lod: str = "a"
    below: int = 0
    positive: bool = False


@dataclass(frozen=True)
class Dense:
    """An input without rows; a shape entry 'n' is the number of sequences."""

    shape: tuple[Any, ...]
    below: int = 0
    like_lengths: str = ""  # int64 numbers that are at most the lengths of that LoD


@dataclass(frozen=True)
class Case:
    """One op under test."""

    op: str
    inputs: Mapping[str, Any]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    ids: str = ""

    @property
    def name(self) -> str:
        return f"{self.op}-{self.ids}" if self.ids else self.op


def draw_offsets(rng: np.random.Generator, count: int, total: int) -> np.ndarray:
    """Offsets of ``count`` sequences over ``total`` rows, with empty ones likely."""
    cuts = np.sort(rng.integers(0, total + 1, count - 1))
    return np.concatenate([[0], cuts, [total]]).astype(np.int32)


@dataclass
class Draw:
    """The numbers of one trial, without any padding."""

    offsets: dict[str, np.ndarray]
    arrays: dict[str, np.ndarray]


def draw(case: Case, rng: np.random.Generator, count: int, total: int) -> Draw:
    names = {v.lod for v in case.inputs.values() if isinstance(v, Rows)}
    offsets = {name: draw_offsets(rng, count, total) for name in sorted(names)}
    arrays = {}
    for slot, spec in case.inputs.items():
        shape = tuple(count if d == "n" else d for d in spec.shape)
        if isinstance(spec, Rows):
            shape = (total, *shape)
        if isinstance(spec, Dense) and spec.like_lengths:
            limits = np.diff(offsets[spec.like_lengths]).reshape(shape)
            arrays[slot] = (rng.random(shape) * (limits + 1)).astype(np.int64)
        elif spec.below:
            arrays[slot] = rng.integers(0, spec.below, shape)
        else:
            positive = isinstance(spec, Rows) and spec.positive
            arrays[slot] = rng.random(shape) + 0.5 if positive else rng.standard_normal(shape)
    return Draw(offsets, arrays)


def pad_rows(rows: np.ndarray, capacity: int, fill: str) -> np.ndarray:
    """Rows with padding: copies of the first or of the last row, or zeros."""
    missing = capacity - len(rows)
    filler = {"first": rows[:1], "last": rows[-1:], "zero": np.zeros_like(rows[:1])}[fill]
    return np.concatenate([rows, np.repeat(filler, missing, axis=0)])


def values_of(case: Case, trial: Draw, capacity: int | None, fill: str) -> dict[str, Any]:
    """Slot values; ``capacity`` None is exact."""
    found: dict[str, Any] = {}
    for slot in lowering.get_op(case.op).inputs:
        spec = case.inputs.get(slot.name)
        if spec is None:
            found[slot.name] = [] if slot.duplicable else None
            continue
        array = trial.arrays[slot.name]
        if isinstance(spec, Rows):
            found[slot.name] = ragged(array, trial.offsets[spec.lod], capacity, fill)
        else:
            found[slot.name] = jnp.asarray(array)
        if slot.duplicable:
            found[slot.name] = [found[slot.name], found[slot.name]]
    return found


def ragged(rows: np.ndarray, offsets: np.ndarray, capacity: int | None, fill: str) -> LoDArray:
    if capacity is None:
        return LoDArray(jnp.asarray(rows), (jnp.asarray(offsets),))
    data = jnp.asarray(pad_rows(rows, capacity, fill))
    return LoDArray(data, (jnp.asarray(offsets),), jnp.int32(len(rows)))


_COMPILED: dict[Any, Any] = {}


def run(op_type: str, attrs: Mapping[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Call an op's rule in a jit, with all LoD traced."""
    key = (op_type, repr(sorted(attrs.items())))
    if key not in _COMPILED:
        definition = lowering.get_op(op_type)
        op = OpView(op_type, {}, {}, attrs)
        program = ProgramView((BlockView(0, -1, (op,), {}),))

        def alone(given: dict[str, Any]) -> dict[str, Any]:
            """With a runner for this trace: what it notes of overflows is traced."""
            return call(definition, given, attrs, special(definition, op, None, Context(op, Runner(program))))

        _COMPILED[key] = jax.jit(alone)
    return _COMPILED[key](values)


def valid_rows(value: Any) -> Any:
    """The numbers of a value that count."""
    if isinstance(value, list):
        return [valid_rows(v) for v in value]
    if isinstance(value, SelectedRows):
        return np.asarray(value.to_dense())
    if isinstance(value, LoDArray):
        count = value.capacity if value.nrows is None else int(value.nrows)
        return np.asarray(value.data)[:count]
    return None if value is None else np.asarray(plain(value))


def padding_rows(value: Any) -> np.ndarray | None:
    if isinstance(value, LoDArray) and value.padded:
        return np.asarray(value.data)[int(value.nrows) :]
    return None


def cotangents(outs: Mapping[str, Any], numbers: dict[str, np.ndarray], rng: np.random.Generator) -> dict[str, Any]:
    """Gradients of the outputs: the same numbers in each padding, zero on padding rows."""
    found = {}
    for slot, out in outs.items():
        if out is None or isinstance(out, list) or not is_float(out.dtype):
            continue
        rows = valid_rows(out)
        if slot not in numbers:
            numbers[slot] = rng.standard_normal(rows.shape)
        grad = numbers[slot]
        if isinstance(out, LoDArray):
            data = pad_rows(grad, out.capacity, "zero") if out.padded and len(grad) else np.zeros(out.shape)
            found[slot] = out.with_data(jnp.asarray(data if out.padded else grad))
        else:
            found[slot] = jnp.asarray(grad)
    return found


def gradient_values(case: Case, ins: dict[str, Any], outs: dict[str, Any], grads: dict[str, Any]) -> dict[str, Any]:
    """What the grad op reads."""
    gradient = lowering.get_op(case.op).gradient
    assert gradient is not None
    found: dict[str, Any] = {}
    for slot in gradient.inputs:
        if slot.name.endswith(GRAD):
            found[slot.name] = grads.get(slot.name[: -len(GRAD)])
        else:
            found[slot.name] = ins.get(slot.name) if slot.name in ins else outs.get(slot.name)
    return found
