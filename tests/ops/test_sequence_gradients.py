"""The gradient ops of every ragged op are the derivative of its forward, in float64.

They are held against jax's own derivative (forward mode, since a loop with a traced bound has no reverse mode) and
against central differences, along a random direction of each input.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lowering
from lowering import OpView, ProgramView, Runner
from lowering.dtypes import is_float
from lowering.program import GRAD, BlockView
from lowering.ragged import time_major
from lowering.values import LoDArray, data_of
from tests.lod.cases import CASES
from tests.lod.property import Case, Dense, Draw, Rows, draw, values_of

pytestmark = pytest.mark.usefixtures("compiled_quickly")

STEP = 1e-6


def _steps_itself(op: str) -> bool:
    """Whether the gradient op changes its table and returns no gradient: tests/ops/test_pyramid_hash.py."""
    return lowering.has_op(op + "_grad") and bool(lowering.get_op(op + "_grad").updates)


DIFFERENTIABLE = [c for c in CASES if lowering.get_op(c.op).differentiable and not _steps_itself(c.op)]
WIDE = [
    # A hidden size divisible by 8, where Paddle 1.8.5's own float32 gradient is wrong.
    Case("lstm", {"Input": Rows((32,)), "Weight": Dense((8, 32)), "Bias": Dense((1, 56))}, ids="hidden-8"),
    # Enough sequences that the loop narrows its window as they end.
    Case(
        "lstm",
        {
            "Input": Rows((8,)),
            "Weight": Dense((2, 8)),
            "Bias": Dense((1, 14)),
            "H0": Dense(("n", 2)),
            "C0": Dense(("n", 2)),
        },
        ids="phases",
    ),  # fmt: skip
    Case("gru", {"Input": Rows((6,)), "Weight": Dense((2, 6)), "H0": Dense(("n", 2))}, ids="phases"),
    Case(
        "linear_chain_crf",
        {"Emission": Rows((3,)), "Transition": Dense((5, 3)), "Label": Rows((1,), below=3)},
        ids="phases",
    ),  # fmt: skip
    # One sequence, whose rows are its steps.
    *(
        Case(op, {"Input": Rows((4 * width,)), "Weight": Dense((width, 4 * width)), **more}, attrs, "alone")
        for op, width, more, attrs in (
            ("lstm", 2, {"Bias": Dense((1, 14)), "H0": Dense(("n", 2)), "C0": Dense(("n", 2))}, {"is_reverse": True}),
            ("lstmp", 2, {"ProjWeight": Dense((2, 2)), "Bias": Dense((1, 14))}, {"is_reverse": True}),
        )
    ),
    Case(
        "gru",
        {"Input": Rows((6,)), "Weight": Dense((2, 6)), "H0": Dense(("n", 2))},
        {"is_reverse": True},
        "alone",
    ),
    Case(
        "linear_chain_crf",
        {"Emission": Rows((3,)), "Transition": Dense((5, 3)), "Label": Rows((1,), below=3)},
        ids="alone",
    ),  # fmt: skip
    # Activations whose derivatives the kernels take from the output, gates other than sigmoid, bare recurrences.
    Case(
        "lstm",
        {"Input": Rows((8,)), "Weight": Dense((2, 8)), "Bias": Dense((1, 14))},
        {"gate_activation": "tanh", "cell_activation": "identity", "candidate_activation": "sigmoid"},
        "activations",
    ),
    Case(
        "gru",
        {"Input": Rows((6,)), "Weight": Dense((2, 6))},
        {"gate_activation": "tanh", "activation": "sigmoid", "is_reverse": True},
        "activations",
    ),
    Case(
        "lstmp",
        {"Input": Rows((8,)), "Weight": Dense((3, 8)), "ProjWeight": Dense((2, 3)), "Bias": Dense((1, 8))},
        {"use_peepholes": False, "is_reverse": True, "proj_activation": "identity"},
        "bare",
    ),
    # Sequences without rows beside first states, where Paddle 1.8.5's gradients of Weight and H0 are wrong.
    Case(
        "lstmp",
        {
            "Input": Rows((8,)),
            "Weight": Dense((3, 8)),
            "ProjWeight": Dense((2, 3)),
            "Bias": Dense((1, 8)),
            "H0": Dense(("n", 3)),
            "C0": Dense(("n", 2)),
        },
        {"use_peepholes": False},
        "few",
    ),
    Case("sequence_conv", {"X": Rows(), "Filter": Dense((6, 2))}, {"contextLength": 2, "contextStart": 1}, "ahead"),
    Case("fused_embedding_seq_pool", {"W": Dense((7, 3)), "Ids": Rows((1, 1), below=7)}, {}, "plain"),
]
COUNTS = {"phases": (19, 40), "alone": (1, 6), "few": (5, 4)}
PROVEN = {case.op for case in DIFFERENTIABLE}


Env = dict[str, Any]


def view_of(case: Case, values: Env) -> OpView:
    """The op with one variable for each slot that has a value; both of a duplicable slot's."""
    definition = lowering.get_op(case.op)
    inputs = {
        slot: [f"{slot}.{i}" for i in range(len(v))] if isinstance(v, list) else [slot]
        for slot, v in values.items()
        if v is not None and not (isinstance(v, list) and not v)
    }
    outputs = {s.name: [f"{s.name}.out"] for s in definition.outputs}
    return OpView(case.op, inputs, outputs, lowering.check_attrs(case.op, dict(case.attrs)))


def env_of(values: Env) -> Env:
    flat: Env = {}
    for slot, value in values.items():
        if isinstance(value, list):
            flat.update({f"{slot}.{i}": v for i, v in enumerate(value)})
        elif value is not None:
            flat[slot] = value
    return flat


def run_op(op: OpView, env: Env) -> Env:
    program = ProgramView((BlockView(0, -1, (op,), {}),))
    return Runner(program, key=None).run_op(op, dict(env))


def moved(value: Any, by: Any) -> Any:
    return value.with_data(value.data + by) if isinstance(value, LoDArray) else value + by


def masked(value: Any, weights: Any) -> Any:
    """Weights like a value, zero on its padding rows."""
    if isinstance(value, LoDArray) and value.padded:
        rows = jnp.arange(value.capacity) < value.nrows
        weights = weights * rows.reshape(-1, *(1,) * (weights.ndim - 1))
    return weights


class Proof:
    """One op at one point: its gradient ops, and the inner product of its outputs with fixed weights."""

    def __init__(self, case: Case, trial: Draw, rng: np.random.Generator):
        values = values_of(case, trial, None, "first")
        self.op, self.env = view_of(case, values), env_of(values)
        inexact = {n + GRAD for n, v in self.env.items() if not is_float(v.dtype)}
        self.specs, _ = lowering.grad_ops(self.op, inexact)
        outs = jax.eval_shape(lambda env: run_op(self.op, env), self.env)
        read = {n for spec in self.specs for names in spec.inputs.values() for n in names}
        self.weights = {
            n: rng.standard_normal(v.shape) for n, v in outs.items() if n + GRAD in read and is_float(v.dtype)
        }

    def gradients(self) -> Env:
        """Input variable -> its gradient by Fluid's ops."""

        def every(env: Env) -> Env:
            env = {**env, **run_op(self.op, env)}
            for name, weights in self.weights.items():
                out, data = env[name], masked(env[name], weights)
                env[name + GRAD] = out.with_data(data) if isinstance(out, LoDArray) else data
            for spec in self.specs:
                env.update(run_op(OpView(spec.type, spec.inputs, spec.outputs, {**spec.attrs, "op_role": 1}), env))
            return {n: data_of(env[n + GRAD]) for n in self.env if n + GRAD in env}

        return jax.jit(every)(self.env)

    def along(self, t: float, directions: Env) -> tuple[Any, Any]:
        """(objective, its derivative) at ``t`` along ``directions``."""

        def objective(t: Any) -> Any:
            outs = run_op(
                self.op, {n: moved(v, t * directions[n]) if n in directions else v for n, v in self.env.items()}
            )
            return sum(jnp.sum(data_of(outs[n]) * masked(outs[n], w)) for n, w in self.weights.items())

        return jax.jvp(objective, (t,), (1.0,))


@pytest.mark.parametrize("case", DIFFERENTIABLE + WIDE, ids=lambda c: c.name)
def test_gradient_is_the_derivative(case, rng, monkeypatch):
    if case.ids == "phases":
        monkeypatch.setattr(time_major, "WORTH", 0)
    count, total = COUNTS.get(case.ids, (5, 11))
    with jax.enable_x64(True):
        proof = Proof(case, draw(case, rng, count, total), rng)
        gradients = proof.gradients()
        assert gradients, "no input has a gradient"
        at = jax.jit(proof.along)
        still = {n: np.zeros(g.shape) for n, g in gradients.items()}
        for name, gradient in gradients.items():
            directions = {**still, name: rng.standard_normal(gradient.shape)}
            ours = float(np.sum(np.asarray(gradient) * directions[name]))
            slope = float(at(0.0, directions)[1])
            difference = float(at(STEP, directions)[0] - at(-STEP, directions)[0]) / (2 * STEP)
            scale = float(np.linalg.norm(gradient))
            assert ours == pytest.approx(slope, rel=1e-9, abs=1e-9 * scale), f"{name} against jax.jvp"
            assert ours == pytest.approx(difference, rel=1e-6, abs=1e-6 * scale), f"{name} against differences"
