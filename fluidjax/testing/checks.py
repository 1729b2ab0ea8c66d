"""The checks of a case. Each raises Mismatch, naming the op, the variable and both values."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import lowering
from fluidjax.testing.case import Case
from fluidjax.testing.float32 import narrowed, tall_and_narrow
from fluidjax.testing.run import Bound, bind, no_grad, random_like, read_gradients, run_forward, run_gradient, run_op
from lowering.dtypes import is_float
from lowering.engine.x64 import in_x64
from lowering.program import GRAD, OpView

STEP = 1e-6
GRADIENT_RTOL = 1e-6
FLOAT32_RTOL = 1e-5


class Mismatch(AssertionError):
    """Two computations of the same value disagree."""


def _compare(what: str, got: Any, want: Any, rtol: float) -> None:
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape:
        raise Mismatch(f"{what}: shape {got.shape}, expected {want.shape}; check the rule's shapes")
    if not is_float(want.dtype):
        if got.dtype != want.dtype:
            raise Mismatch(f"{what}: {got.dtype}, expected {want.dtype}; check the rule's dtypes")
        equal = np.array_equal(got, want)
        error = 0.0 if equal else 1.0
    else:
        g, w = got.astype(np.float64), want.astype(np.float64)
        scale = max(float(np.max(np.abs(w), initial=0.0, where=np.isfinite(w))), 1.0)
        same = (g == w) | (np.isnan(g) & np.isnan(w))
        with np.errstate(invalid="ignore"):  # inf - inf
            error = float(np.max(np.where(same, 0.0, np.abs(g - w)), initial=0.0)) / scale
    if not error <= rtol:
        raise Mismatch(f"{what}: differs by {error:.3g} (allowed {rtol:.3g})\n  received {got}\n  expected {want}")


@in_x64
def check_forward(case: Case, rng: np.random.Generator) -> None:
    """Compare the outputs with the case's NumPy reference, in float64."""
    if case.reference is None:
        return
    bound = bind(case, rng)
    outs = jax.jit(lambda: run_forward(bound))()
    arguments = {slot: _bound_values(bound, slot) for slot in case.draws}
    expected = case.reference(**arguments, **case.attrs)
    wanted = expected if isinstance(expected, tuple) else (expected,)
    for slot, value in zip(lowering.get_op(case.op).outputs, wanted, strict=False):
        values = value if isinstance(value, list) else [value]
        for name, one in zip(bound.op.outputs[slot.name], values, strict=True):
            if one is not None:
                _compare(f"{case.name} {name}", outs[name], one, case.rtol)


def _bound_values(bound: Bound, slot: str) -> Any:
    names = bound.op.inputs[slot]
    definition = lowering.get_op(bound.op.type).input(slot)
    arrays = [bound.values[n] for n in names]
    return arrays if definition is not None and definition.duplicable else arrays[0]


def check_float32(case: Case, rng: np.random.Generator) -> None:
    """Check that float32 gives float32: outputs and gradients close to float64, also on more than eight rows."""
    wide, narrow = tall_and_narrow(case, rng)
    for name, out in wide.items():
        got = narrow[name]
        declared = {"dtype", "out_dtype"} & set(case.attrs)
        if not declared and out.dtype == got.dtype == np.float64:
            raise Mismatch(f"{case.name} {name}: float32 inputs give float64; keep the input's dtype in the rule")
        if is_float(out.dtype):
            _compare(f"{case.name} {name} in float32", got, out, FLOAT32_RTOL)


@in_x64
def check_half(case: Case, rng: np.random.Generator, dtype: Any) -> None:
    """Check that float16 or bfloat16 gives the same dtype, for the op and its gradient ops; nothing is computed."""
    if {"dtype", "out_dtype"} & set(case.attrs):
        return
    bound = bind(case, rng)
    bound.values = {n: narrowed(v, dtype) for n, v in bound.values.items()}
    results = jax.eval_shape(lambda: _with_unit_gradients(bound))
    for name, out in results.items():
        wide = is_float(out.dtype) and out.dtype != dtype
        if wide and any(v.dtype == dtype for v in bound.values.values()):
            raise Mismatch(f"{case.name} {name}: {np.dtype(dtype)} inputs give {out.dtype}; keep the input's dtype")


def _with_unit_gradients(bound: Bound) -> dict[str, Any]:
    """The outputs, and the gradients for output gradients of one."""
    outs = run_forward(bound)
    if not bound.wrt() or not lowering.grad_ops(bound.op, no_grad(bound))[0]:
        return outs
    cots = {n: jnp.ones_like(outs[n]) for n in read_gradients(bound) if is_float(outs[n].dtype)}
    grads = run_gradient(bound, {**bound.values, **outs}, cots) if cots else {}
    return outs | {n + GRAD: g for n, g in grads.items()}


@in_x64
def check_modes(case: Case, rng: np.random.Generator) -> None:
    """Check that a surrounding jit and interpret mode (one jit per op) give the same bits."""
    bound = bind(case, rng)
    dynamic = {n: v for n, v in bound.values.items() if is_float(v.dtype)}
    jitted = jax.jit(lambda given: run_forward(bound, {**bound.values, **given}))(dynamic)
    single = run_forward(bound, interpret=True)
    for name, out in jitted.items():
        _compare(f"{case.name} {name}: jit against interpret mode", out, single[name], 0.0)


@in_x64
def check_gradient(case: Case, rng: np.random.Generator) -> None:
    """Compare Fluid's gradient ops with ``jax.vjp`` and directional finite differences, in float64."""
    bound = bind(case, rng)
    if not bound.wrt() or not lowering.grad_ops(bound.op, no_grad(bound))[0]:
        return
    outs = jax.eval_shape(lambda: run_forward(bound))
    read = [n for n in read_gradients(bound) if is_float(outs[n].dtype)]
    if not read:
        return
    cots = {n: random_like(rng, outs[n]) for n in read}
    direction = {n: random_like(rng, bound.values[n]) for n in bound.wrt()}
    ours, theirs, slope = jax.jit(lambda: _three_ways(bound, cots, direction))()
    if not case.smooth:
        return
    for name, grad in ours.items():
        _compare(f"{case.name} {name}{GRAD} against jax.vjp", grad, theirs[name], GRADIENT_RTOL)
    along = sum(float(np.sum(np.asarray(g) * np.asarray(direction[n]))) for n, g in ours.items())
    _compare(f"{case.name} gradient against finite differences", along, float(slope), GRADIENT_RTOL)


def _three_ways(bound: Bound, cots: dict[str, Any], direction: dict[str, Any]) -> Any:
    """(gradients by Fluid's ops, by jax.vjp, the slope along ``direction`` by central differences)."""
    wrt = {n: jnp.asarray(bound.values[n]) for n in bound.wrt()}

    def outputs(given: dict[str, Any]) -> dict[str, Any]:
        outs = run_forward(bound, {**bound.values, **given})
        return {n: outs[n] for n in cots}

    def objective(t: float) -> Any:
        outs = outputs({n: v + t * direction[n] for n, v in wrt.items()})
        return sum(jnp.sum(outs[n] * cots[n]) for n in cots)

    every = {**bound.values, **run_forward(bound)}
    ours = run_gradient(bound, every, cots)
    _, pull = jax.vjp(outputs, wrt)
    slope = (objective(STEP) - objective(-STEP)) / (2 * STEP)
    return ours, pull(cots)[0], slope


@in_x64
def check_double_gradient(case: Case, rng: np.random.Generator) -> None:
    """Compare the gradient of the gradient op with its ``jax.vjp``, in float64."""
    bound = bind(case, rng)
    (spec,), _ = lowering.grad_ops(bound.op, no_grad(bound))
    grad_op = OpView(spec.type, spec.inputs, spec.outputs, {**spec.attrs, "op_role": 1})
    outs = run_forward(bound)
    env = {**bound.values, **outs, **{n + GRAD: random_like(rng, outs[n]) for n in read_gradients(bound)}}
    seconds = {n: random_like(rng, env[n.split(GRAD)[0]]) for n in grad_op.output_names()}
    sources = [n for n in grad_op.input_names() if is_float(env[n].dtype) and env[n].size]
    ours, theirs = jax.jit(lambda: _twice(bound, grad_op, env, seconds, sources))()
    for name, grad in ours.items():
        _compare(f"{grad_op.type} {name}{GRAD} against jax.vjp", grad, theirs[name], GRADIENT_RTOL)


def _twice(bound: Bound, grad_op: OpView, env: dict[str, Any], seconds: dict[str, Any], sources: list[str]) -> Any:
    specs, _ = lowering.grad_ops(grad_op, set())
    full = {**env, **run_op(bound, grad_op, env), **{n + GRAD: g for n, g in seconds.items()}}
    found: dict[str, Any] = {}
    for spec in specs:
        found.update(run_op(bound, OpView(spec.type, spec.inputs, spec.outputs, {**spec.attrs, "op_role": 1}), full))
    wrt = {n: jnp.asarray(env[n]) for n in sources if n + GRAD in found}

    def gradients(given: dict[str, Any]) -> dict[str, Any]:
        # Saved statistics that the grad op reads follow from the inputs, and have no gradients of their own.
        outs = run_forward(bound, {**bound.values, **given})
        again = run_op(bound, grad_op, {**env, **outs, **given})
        return {n: again[n] for n in seconds}

    _, pull = jax.vjp(gradients, wrt)
    return {n: found[n + GRAD] for n in wrt}, pull(seconds)[0]
