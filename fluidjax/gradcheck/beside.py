"""One op compared with itself: in float32 as users run it, and over padded rows as batches are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np

import lowering
from fluidjax.gradcheck.double import to_double, to_single
from fluidjax.gradcheck.local import Env, Subject, apart, dense, floating, generic, inputs_before, like, run_ops, seeds
from lowering.dtypes import FP32
from lowering.engine.runner import Runner
from lowering.errors import NeedsConcrete, NeedsExact
from lowering.program import GRAD, OpView, ProgramView
from lowering.values import LoDArray, data_of, exact

# Rows of padding: enough to cover the end of any window that a rule might use.
PADDING = 3
# Results smaller than this per element are compared as if they were this large, because float32 cancels.
_SMALL = 1e-3


def float32_error(
    subject: Subject, single: ProgramView, env: Env, rng: np.random.Generator, key: Any, limit: float
) -> float | None:
    """The largest relative difference of results and gradients in float32 from those in float64 at the same numbers.

    None if there is nothing to compare. At a tie or kink float32 may choose another side: the op is then compared at
    a nearby point.
    """
    error = _float32_error(subject, single, env, rng, key)
    if error is None or error <= limit:
        return error
    again = _float32_error(subject, single, generic(env, rng), rng, key)
    return error if again is None else min(error, again)


def _float32_error(subject: Subject, single: ProgramView, env: Env, rng: np.random.Generator, key: Any) -> float | None:
    block = single.blocks[subject.op.block_idx]
    wanted = {n for n, v in env.items() if _is_single(single, subject.op, n) and floating(v)}
    short = {n: to_single(v) if n in wanted else v for n, v in env.items()}
    if not wanted.intersection(n for op in subject.ops for n in op.input_names()):
        return None
    op = block.ops[_place(block.ops, subject.op)]
    forward = None if subject.forward is None else block.ops[_place(block.ops, subject.forward)]
    narrow, short = apart(Subject(single, op, forward), short)
    subject, long = apart(subject, {n: to_double(v) for n, v in short.items()})
    found = seeds(subject, long, key)
    if found is None:
        return None
    views, inputs, outputs, after = found
    cotangents = {n: rng.standard_normal(np.shape(data_of(after[n]))).astype(np.float32) for n in outputs}
    given = {n + GRAD: like(after[n], c.astype(np.float64)) for n, c in cotangents.items()}
    wide = run_ops(subject.program, views, {**long, **after, **given, **inputs_before(subject.op, long)}, key)
    errors = []
    if "key" not in lowering.get_op(op.type).special:  # float32 and float64 draw different numbers
        less = narrow.run(short, key)
        errors += [_relative(less[n], after[n]) for n in subject.op.output_names() if floating(after.get(n))]
    less = {n: to_single(v) if floating(v) else v for n, v in after.items() if n not in short or n in op.output_names()}
    given = {n + GRAD: like(after[n], c) for n, c in cotangents.items()}
    views, _ = narrow.gradient()
    thin = run_ops(single, views, {**short, **less, **given, **inputs_before(narrow.op, short)}, key)
    errors += [_relative(thin[n + GRAD], wide[n + GRAD]) for n in inputs if wide.get(n + GRAD) is not None]
    return max(errors, default=None)


def _place(ops: tuple[OpView, ...], op: OpView) -> int:
    return next(i for i, other in enumerate(ops) if other.index == op.index)


def _is_single(program: ProgramView, op: OpView, name: str) -> bool:
    var = program.find_var(op.block_idx, name)
    return var is None or var.dtype == FP32


def padding_error(subject: Subject, env: Env, rng: np.random.Generator, key: Any) -> float | None:
    """The largest relative difference of results and gradients over padded rows from those over exact rows.

    None if no input is ragged. Infinite if padding rows of a gradient are not zero.
    """
    subject, env = apart(subject, env)
    names = {n for op in subject.ops for n in op.input_names()}
    longer = {n: _padded(v, n in subject.program.gradients) if n in names else v for n, v in env.items()}
    if all(longer[n] is env[n] for n in names & longer.keys()):
        return None
    found = seeds(subject, env, key)
    if found is None:
        return None
    views, inputs, outputs, after = found
    cotangents = {n: like(after[n], rng.standard_normal(np.shape(data_of(after[n])))) for n in outputs}
    given = {n + GRAD: v for n, v in cotangents.items()}
    want = run_ops(subject.program, views, {**env, **after, **given, **inputs_before(subject.op, env)}, key)

    try:
        more = {**longer, **_run_padded(subject, subject.ops, longer, key)}
        errors = [_relative(exact(more[n]), after[n]) for n in subject.op.output_names() if floating(after.get(n))]
        given = {n + GRAD: _as_padded(v, more[n]) for n, v in cotangents.items()}
        got = _run_padded(subject, views, {**more, **given, **inputs_before(subject.op, longer)}, key)
    except (NeedsExact, NeedsConcrete):
        return None  # the executor runs it on unpadded rows
    for name in (n + GRAD for n in inputs if want.get(n + GRAD) is not None):
        errors.append(_relative(exact(got[name]), want[name]) if _clean(got[name]) else np.inf)
    return max(errors, default=None)


def _run_padded(subject: Subject, ops: list[OpView], env: Env, key: Any) -> Env:
    """The values after ``ops``, including their padding."""
    return dict(Runner(subject.program, key=key).run_ops(ops, dict(env)))


def _padded(value: Any, gradient: bool) -> Any:
    if not isinstance(value, LoDArray) or value.padded or not value.lod or not value.data.shape[0]:
        return value
    data = np.asarray(value.data)
    fill = np.zeros_like(data[:1]) if gradient else data[:1]
    whole = np.concatenate([data, *[fill] * PADDING])
    return replace(value, data=jnp.asarray(whole), lod=tuple(map(jnp.asarray, value.lod)), nrows=jnp.int32(len(data)))


def _as_padded(value: Any, like: Any) -> Any:
    """A gradient over unpadded rows, padded with zeros like the value it belongs to."""
    if not isinstance(like, LoDArray) or not like.padded:
        return value
    data = np.asarray(data_of(value))
    missing = like.data.shape[0] - len(data)
    return like.with_data(np.concatenate([data, np.zeros((missing, *data.shape[1:]), data.dtype)]))


def _clean(value: Any) -> bool:
    if not isinstance(value, LoDArray) or not value.padded:
        return True
    return not np.any(np.asarray(value.data)[int(np.asarray(value.nrows)) :])


def relative(got: np.ndarray, want: np.ndarray) -> float:
    """The norm of the difference relative to that of ``want``; infinite where shapes or non-finite numbers differ."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    if got.size != want.size:
        return np.inf
    got = got.reshape(want.shape)
    good = np.isfinite(want)
    if not np.array_equal(good, np.isfinite(got)):
        return np.inf
    size = max(float(np.linalg.norm(want[good])), _SMALL * np.sqrt(max(want.size, 1)))
    return float(np.linalg.norm(got[good] - want[good])) / size


def _relative(got: Any, want: Any) -> float:
    return relative(dense(got), dense(want))
