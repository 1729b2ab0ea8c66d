"""Fluid's backward pass of a whole program against ``jax.grad`` and finite differences, in one compilation.

``fluid.check_grad`` finds the op that is wrong, with one compilation per op; this only detects that one is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fluidjax.backward import append_backward
from fluidjax.framework import program_view
from fluidjax.gradcheck.double import in_double, to_double
from fluidjax.testing.checks import GRADIENT_RTOL, Mismatch
from lowering.engine.runner import Runner
from lowering.engine.x64 import in_x64
from lowering.program import ProgramView
from lowering.values import data_of

STEP = 1e-4
Env = Mapping[str, Any]


def gradient_program(loss: Any, parameters: Sequence[str]) -> tuple[ProgramView, dict[str, str]]:
    """(a copy of the loss's program with its backward pass, in double precision; gradient by parameter)."""
    copy = loss.block.program.clone()
    pairs = append_backward(copy.global_block().var(loss.name), parameter_list=list(parameters))
    return in_double(program_view(copy)), {p.name: g.name for p, g in pairs if g is not None}


@in_x64
def check_backward(loss: Any, values: Env, parameters: Sequence[str], rng: np.random.Generator) -> set[str]:
    """Compare the gradients of ``parameters``; returns the types of the gradient ops that ran.

    Args:
        loss: the loss variable, of shape [1].
        values: feeds and parameters by name.
        parameters: names of the parameters.
        rng: draws the direction of the finite differences.

    Raises:
        Mismatch: naming the parameter, or the differences.
    """
    view, gradients = gradient_program(loss, parameters)
    env = {name: to_double(value) for name, value in values.items()}
    towards = {name: rng.standard_normal(env[name].shape) for name in gradients}
    trained = {name: env[name] for name in gradients}
    ways = jax.jit(lambda given: _three_ways(view, loss.name, gradients, {**env, **given}, towards))
    ours, theirs, slope = ways(trained)
    along = 0.0
    for name, gradient in ours.items():
        _hold(f"{name}@GRAD against jax.grad", gradient, theirs[name])
        along += float(np.sum(np.asarray(gradient) * towards[name]))
    scale = max(float(np.linalg.norm(np.asarray(g))) for g in ours.values())
    _hold("the gradients against finite differences", along, slope, scale)
    return {op.type for op in view.blocks[0].ops if op.is_backward}


def _three_ways(view: ProgramView, loss: str, gradients: Mapping[str, str], env: Env, towards: Env) -> Any:
    """(gradients by Fluid's ops, by jax.grad, the slope along ``towards`` by central differences)."""
    key = jax.random.key(0)
    forward = [op for op in view.blocks[0].ops if not op.is_backward]

    def objective(parameters: Env) -> Any:
        ran = Runner(view, key=key).run_ops(forward, {**env, **parameters})
        return data_of(ran[loss]).reshape(())

    def at(t: float) -> Any:
        return objective({name: env[name] + t * direction for name, direction in towards.items()})

    ran = Runner(view, key=key).run_ops(view.blocks[0].ops, dict(env))
    ours = {name: data_of(ran[gradient]) for name, gradient in gradients.items()}
    theirs = jax.grad(objective)({name: jnp.asarray(env[name]) for name in gradients})
    slope = (8 * (at(STEP) - at(-STEP)) - (at(2 * STEP) - at(-2 * STEP))) / (12 * STEP)
    return ours, theirs, slope


def _hold(what: str, got: Any, want: Any, scale: float = 0.0) -> None:
    got, want = np.asarray(got), np.asarray(want)
    size = max(scale, float(np.linalg.norm(want)), 1e-8)
    error = float(np.linalg.norm(got - want)) / size
    if got.shape != want.shape or not error <= GRADIENT_RTOL:
        raise Mismatch(
            f"{what}: differs by {error:.3g} (allowed {GRADIENT_RTOL:.3g})\n  received {got}\n  expected {want}"
        )
