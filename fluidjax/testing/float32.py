"""Float32 on many rows against float64 on few: what is wrong in one precision, or beyond some rows, is caught.

An op that works row by row gives repeated rows for repeated rows. So its case runs a second time in float32, its rows
repeated until there are more than MANY; the outputs and gradients have to be those of the float64 run, repeated.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

import lowering
from fluidjax.testing.case import Case
from fluidjax.testing.run import Bound, bind, no_grad, random_like, read_gradients, run_forward, run_gradient
from lowering.dtypes import is_float
from lowering.engine.x64 import in_x64
from lowering.program import GRAD
from lowering.values import LoDArray, data_of

MANY = 8


def narrowed(value: Any, dtype: Any = np.float32) -> Any:
    """A float64 value in another precision."""
    if isinstance(value, LoDArray):
        return value.with_data(narrowed(value.data, dtype))
    return value.astype(dtype) if value.dtype == np.float64 else value


def rows_of(bound: Bound) -> dict[str, int]:
    """The inputs that hold the rows of an op that works row by row, with their number; none for any other op."""
    definition, names = lowering.get_op(bound.op.type), bound.op.inputs
    slots = [s for s in definition.inputs if names.get(s.name)]
    if not slots or "key" in definition.special or any(isinstance(v, LoDArray) for v in bound.values.values()):
        return {}
    first = bound.values[names[slots[0].name][0]]
    rule = definition.rows_rule(bound.op.attrs, np.ndim(first))
    if not isinstance(rule, lowering.Wise) or np.size(first) <= 1:
        return {}
    carriers = [s for s in slots if s.param in rule.params(definition)] or slots
    held = {n: bound.values[n].shape for s in carriers for n in names[s.name]}
    ndim, rows = next((len(shape), shape[0]) for shape in held.values())
    return {n: rows for n, shape in held.items() if len(shape) == ndim and shape[0] == rows}


@in_x64
def tall_and_narrow(case: Case, rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Any]]:
    """(float64 results repeated as the rows are, float32 results on repeated rows), by name of output and gradient."""
    bound = bind(case, rng)
    narrow = {n: narrowed(v) for n, v in bound.values.items()}
    wide = {n: _widened(narrow[n], v) for n, v in bound.values.items()}
    outs = jax.eval_shape(lambda: run_forward(bound))
    rows = rows_of(bound)
    count = next(iter(rows.values()), 0)
    if all(v.shape[:1] != (count,) for v in outs.values()):  # results of other rows, as of expand_as: not row by row
        rows, count = {}, 0
    times = -(-(MANY + 1) // count) if count else 1
    tall = {n: np.concatenate([np.asarray(v)] * times) if n in rows else v for n, v in narrow.items()}
    grown = jax.eval_shape(lambda: run_forward(bound, tall))
    cots = {n: random_like(rng, outs[n]).astype(np.float32) for n in _read(bound) if is_float(outs[n].dtype)}
    many = {n: _repeated(c, grown[n].shape) for n, c in cots.items()}
    cots = {n: c.astype(np.float64) for n, c in cots.items()}
    run = jax.jit(lambda *given: _both(bound, (wide, tall), given, (cots, many)))
    short, long = run(_floats(wide), _floats(tall))
    wanted = {n: np.asarray(_repeated(np.asarray(v), long[n].shape)) for n, v in short.items()}
    totals = {n + GRAD for n in bound.values if n not in rows}
    return {n: v * times if n in totals and times > 1 else v for n, v in wanted.items()}, long


def _floats(values: dict[str, Any]) -> dict[str, Any]:
    """What is traced; numbers and places that rules may want to know stay known."""
    return {n: v for n, v in values.items() if isinstance(v, np.ndarray) and is_float(v.dtype)}


def _both(bound: Bound, values: Any, given: Any, cots: Any) -> list[dict[str, Any]]:
    return [_results(bound, {**v, **g}, c) for v, g, c in zip(values, given, cots, strict=True)]


def _widened(narrow: Any, like: Any) -> Any:
    if isinstance(narrow, LoDArray):
        return narrow.with_data(np.asarray(narrow.data, like.data.dtype))
    return narrow.astype(like.dtype)


def _repeated(value: Any, shape: tuple[int, ...]) -> Any:
    """A value repeated along its first dim, or as it is where its shape fits or no repetition gives it."""
    fits = value.shape == shape or not value.ndim or not value.shape[0] or shape[1:] != value.shape[1:]
    return value if fits else np.concatenate([np.asarray(value)] * (shape[0] // value.shape[0]))


def _read(bound: Bound) -> list[str]:
    if not bound.wrt() or not lowering.grad_ops(bound.op, no_grad(bound))[0]:
        return []
    return read_gradients(bound)


def _results(bound: Bound, values: dict[str, Any], cots: dict[str, Any]) -> dict[str, Any]:
    outs = run_forward(bound, values)
    grads = run_gradient(bound, {**values, **outs}, cots) if cots else {}
    return {n: data_of(v) for n, v in (outs | {n + GRAD: g for n, g in grads.items()}).items()}
