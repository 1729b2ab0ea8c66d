"""Checking one op's gradient at given values: its grad ops, ``jax.vjp`` of its function, finite differences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lowering.engine.gradients.grad_maker import grad_ops
from lowering.engine.runner import Runner
from lowering.program import EMPTY, GRAD, OpSpec, OpView, ProgramView
from lowering.values import LoDArray, SelectedRows, data_of, exact

Env = dict[str, Any]

# Step sizes of the differences, the most accurate ones for smooth functions first.
STEPS = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8)


@dataclass(frozen=True)
class Probe:
    """Results for one op along a random direction; None where a method does not apply."""

    fluid: float
    autodiff: float | None
    difference: float
    scale: float

    @property
    def error(self) -> float:
        """The largest difference between two methods, relative to ``scale``."""
        ways = [self.fluid, self.difference] + ([] if self.autodiff is None else [self.autodiff])
        return (max(ways) - min(ways)) / self.scale if np.isfinite(ways).all() else float("inf")


def floating(value: Any) -> bool:
    """Whether a value is a tensor of floating-point numbers."""
    if not isinstance(value, (LoDArray, np.ndarray, jax.Array)):
        return False
    return np.issubdtype(np.asarray(data_of(value)).dtype, np.floating)


def perturbed(value: Any, direction: np.ndarray, step: float) -> Any:
    """value + step * direction, with the LoD of ``value``."""
    data = np.asarray(data_of(value)) + step * direction
    return value.with_data(data) if isinstance(value, LoDArray) else data


def inner(gradient: Any, direction: np.ndarray) -> float:
    """<gradient, direction>; a missing gradient counts as zero, a sparse one by its rows."""
    if gradient is None:
        return 0.0
    if isinstance(gradient, SelectedRows):
        gradient = gradient.to_dense()
    return float(np.sum(np.asarray(data_of(gradient)).reshape(direction.shape) * direction))


def run_ops(program: ProgramView, ops: list[OpView], env: Env, key: Any) -> Env:
    """The environment after ``ops``, without padding rows; ``env`` is unchanged."""
    after = Runner(program, key=key, interpret=True).run_ops(ops, dict(env))
    return {name: exact(value) for name, value in after.items()}


def as_views(specs: list[OpSpec]) -> list[OpView]:
    """Grad ops outside any program, as views with op_role Backward."""
    return [OpView(s.type, s.inputs, s.outputs, {**s.attrs, "op_role": 1}, -1, 0) for s in specs]


@dataclass(frozen=True)
class Subject:
    """An op to be checked separately.

    Attributes:
        program: the program it belongs to, in double precision.
        op: the op.
        forward: for a gradient op that reads saved results, the op that computed them: it always runs first.
    """

    program: ProgramView
    op: OpView
    forward: OpView | None = None

    @property
    def ops(self) -> list[OpView]:
        """The ops to run, in order."""
        return [self.op] if self.forward is None else [self.forward, self.op]

    def gradient(self) -> tuple[list[OpView], list[str]]:
        """(its gradient ops, the variables whose gradients they compute)."""
        specs, grad_to_var = grad_ops(self.op, (), forward=self.forward)
        return as_views(specs), list(dict.fromkeys(grad_to_var.values()))

    def run(self, env: Env, key: Any) -> Env:
        """The values by name after its ops have run over ``env``, which is unchanged."""
        return run_ops(self.program, self.ops, env, key)


def check_op(subject: Subject, env: Env, rng: np.random.Generator, key: Any, rtol: float) -> Probe | None:
    """Compare the methods for one op at the values ``env``; None if the op has no gradient or nothing to vary.

    Where the op has a kink or a tie (relu at 0, equal maxima), its gradient is a convention; if the methods disagree at
    ``env``, they are compared again at a nearby, generic point.
    """
    subject, env = apart(subject, env)
    probe = _probe_op(subject, env, rng, key, rtol)
    if probe is None or probe.error <= rtol:
        return probe
    again = _probe_op(subject, generic(env, rng), rng, key, rtol)
    return again if again is not None and again.error < probe.error else probe


def apart(subject: Subject, env: Env) -> tuple[Subject, Env]:
    """The op with a variable of its own for each use of one that it reads twice, as its gradients are then apart."""
    op, env = _inputs_apart(subject.op, env)
    return replace(subject, op=op), env


def _inputs_apart(op: OpView, env: Env) -> tuple[OpView, Env]:
    """The op with a variable of its own for each use of one that it reads twice, as its gradients are then apart."""
    names = op.input_names()
    repeated = {n for n in names if names.count(n) > 1}
    if not repeated:
        return op, env
    env = dict(env)
    inputs: dict[str, list[str]] = {}
    for slot, bound in op.inputs.items():
        inputs[slot] = [f"{n}@{slot}@{i}" if n in repeated else n for i, n in enumerate(bound)]
        env.update({new: env[old] for new, old in zip(inputs[slot], bound, strict=True) if old in env})
    return replace(op, inputs=inputs), env


def generic(env: Env, rng: np.random.Generator) -> Env:
    """Floating-point values perturbed by a few percent, of themselves and of their typical size."""

    def move(value: Any) -> Any:
        if not floating(value):
            return value
        data = np.asarray(data_of(value))
        size = np.abs(data).mean() if data.size else 0.0
        noise = 0.05 * (np.abs(data) * rng.standard_normal(data.shape) + size * rng.uniform(0.5, 1.0, data.shape))
        return perturbed(value, noise, 1.0)

    return {name: move(value) for name, value in env.items()}


def seeds(subject: Subject, env: Env, key: Any) -> tuple[list[OpView], list[str], list[str], Env] | None:
    """(gradient ops, float inputs, float outputs whose gradients are read, values after the op); None without any."""
    views, wanted = subject.gradient()
    inputs = [n for n in wanted if floating(env.get(n))]
    if not views or not inputs:
        return None
    after = subject.run(env, key)
    read = {n for view in views for n in view.input_names()}
    outputs = [n for n in dict.fromkeys(subject.op.output_names()) if n + GRAD in read and floating(after.get(n))]
    return (views, inputs, outputs, after) if outputs else None


def _probe_op(subject: Subject, env: Env, rng: np.random.Generator, key: Any, rtol: float) -> Probe | None:
    found = seeds(subject, env, key)
    if found is None:
        return None
    views, inputs, outputs, after = found
    cotangents = {n: rng.standard_normal(np.shape(data_of(after[n]))) for n in outputs}
    directions = {n: rng.standard_normal(np.shape(data_of(env[n]))) for n in inputs}

    def objective(values: Mapping[str, Any]) -> float:
        out = subject.run({**env, **values}, key)
        return sum(float(np.sum(np.asarray(data_of(out[n])) * cotangents[n])) for n in outputs)

    given = {n + GRAD: like(after[n], cotangents[n]) for n in outputs}
    results = run_ops(subject.program, views, {**env, **after, **given, **inputs_before(subject.op, env)}, key)
    fluid = sum(inner(results.get(n + GRAD), directions[n]) for n in inputs)
    size = _size(results, directions)
    difference = central(objective, {n: env[n] for n in inputs}, directions, fluid, rtol * max(size, abs(fluid)))
    autodiff = _autodiff(subject, env, inputs, outputs, cotangents, directions, key)
    return Probe(fluid, autodiff, difference, max(size, abs(fluid), abs(difference)))


def inputs_before(op: OpView, env: Env) -> Env:
    """Inputs that the op overwrites keep their old value for its gradient only if the op reads them under that name."""
    return {n: env[n] for n in op.input_names() if n in env and n not in op.output_names()}


def like(value: Any, data: np.ndarray) -> Any:
    """``data`` with the LoD of ``value``, if that has one."""
    return value.with_data(data) if isinstance(value, LoDArray) else data


def _size(found: Env, directions: Mapping[str, np.ndarray]) -> float:
    """The size that errors are relative to: that of the terms, rather than of a sum in which they may cancel."""
    terms = [
        float(np.linalg.norm(np.ravel(dense(found[n + GRAD]))) * np.linalg.norm(np.ravel(u)) / max(np.sqrt(u.size), 1))
        for n, u in directions.items()
        if found.get(n + GRAD) is not None
    ]
    return max([1e-8, *terms])


def dense(value: Any) -> np.ndarray:
    """The numbers of a tensor or gradient as a host array; sparse rows are summed."""
    return np.asarray(value.to_dense() if isinstance(value, SelectedRows) else data_of(value))


def central(
    objective: Callable[..., float], values: Env, directions: Mapping[str, np.ndarray], expected: float, close: float
) -> float:
    """Central differences of fourth order along one direction through all inputs.

    Steps from 1e-3 to 1e-8 are tried until a result is within ``close`` of ``expected``: large steps cross kinks, small
    ones lose digits, and a wrong gradient agrees with none. The closest is returned.
    """

    def at(step: float) -> float:
        return objective({n: perturbed(v, directions[n], step) for n, v in values.items()})

    best = np.inf
    for eps in STEPS:
        slope = (8 * (at(eps) - at(-eps)) - (at(2 * eps) - at(-2 * eps))) / (12 * eps)
        if not abs(best - expected) <= abs(slope - expected):
            best = slope
        if abs(best - expected) <= close:
            break
    return best


def resolved(size: float) -> float:
    """The slopes that ``central`` cannot tell from 0: its 18 values of this ``size`` are right to some 4 * 2^-52."""
    return 18 * 4 * float(np.finfo(np.float64).eps) * size / (12 * STEPS[0])


def _autodiff(
    subject: Subject,
    env: Env,
    inputs: list[str],
    outputs: list[str],
    cotangents: Mapping[str, np.ndarray],
    directions: Mapping[str, np.ndarray],
    key: Any,
) -> float | None:
    """<vjp of the op's function, direction>; None for ops that jax cannot differentiate in reverse."""

    def objective(values: Mapping[str, Any]) -> Any:
        local = {**env, **{n: like(env[n], values[n]) for n in inputs}}
        out = Runner(subject.program, key=key).run_ops(subject.ops, local)
        # Outputs with a computed number of rows are padded in a trace, but exact where the cotangents were drawn.
        return sum(jnp.sum(data_of(out[n])[: len(c)] * c) for n, c in cotangents.items())

    try:
        grads = jax.grad(objective)({n: jnp.asarray(data_of(env[n])) for n in inputs})
    except ValueError as error:
        if "while_loop" in str(error) or "Reverse-mode" in str(error):
            return None
        raise
    return sum(inner(grads[n], directions[n]) for n in inputs)


def skipped(op: OpView) -> bool:
    """Ops without values to differentiate."""
    return op.type in ("feed", "fetch") or not any(n != EMPTY for n in op.output_names())
