"""Running one op of a case, and its gradient ops, over the lowering."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import lowering
from fluidjax.testing.case import Case
from lowering.dtypes import from_numpy, is_float
from lowering.engine.runner import Runner
from lowering.program import GRAD, BlockView, OpView, ProgramView, VarView
from lowering.values import data_of


@dataclass
class Bound:
    """A case as an op over named values."""

    case: Case
    op: OpView
    values: dict[str, Any]  # variable name -> array
    program: ProgramView

    @property
    def outputs(self) -> list[str]:
        """The variables that the op writes."""
        return self.op.output_names()

    def wrt(self) -> list[str]:
        """The floating-point input variables whose gradients are checked."""
        definition = lowering.get_op(self.op.type)
        diff = {s.name for s in definition.inputs if s.param in definition.diff}
        slots = diff if self.case.wrt is None else set(self.case.wrt)
        names = [n for slot, bound in self.op.inputs.items() if slot in slots for n in bound]
        return [n for n in names if is_float(self.values[n].dtype)]


def bind(case: Case, rng: np.random.Generator, dtype: Any = np.float64) -> Bound:
    """Draw a case's inputs and bind them to variables; floating-point inputs become ``dtype``."""
    definition = lowering.get_op(case.op)
    values: dict[str, Any] = {}
    inputs: dict[str, list[str]] = {}
    for slot, drawn in case.inputs(rng).items():
        arrays = drawn if isinstance(drawn, list) else [drawn]
        inputs[slot] = [f"{slot}.{i}" for i in range(len(arrays))]
        for name, array in zip(inputs[slot], arrays, strict=True):
            floating = isinstance(array, np.ndarray) and array.dtype.kind == "f"
            values[name] = array.astype(dtype) if floating else array
    outputs = {s.name: [f"{s.name}.{i}.out" for i in range(case.counts.get(s.name, 1))] for s in definition.outputs}
    attrs = lowering.check_attrs(case.op, dict(case.attrs))
    op = OpView(case.op, inputs, outputs, attrs)
    variables = {n: VarView(n, dtype=from_numpy(v.dtype), shape=v.shape) for n, v in values.items()}
    return Bound(case, op, values, ProgramView((BlockView(0, -1, (op,), variables),)))


def run_op(bound: Bound, op: OpView, values: dict[str, Any], *, interpret: bool = False) -> dict[str, Any]:
    """The outputs of one op by variable name."""
    runner = Runner(bound.program, key=jax.random.key(0), interpret=interpret)
    return {n: data_of(v) for n, v in runner.run_op(op, dict(values)).items()}


def run_forward(bound: Bound, values: dict[str, Any] | None = None, *, interpret: bool = False) -> dict[str, Any]:
    """The outputs of the case's op by variable name."""
    return run_op(bound, bound.op, bound.values if values is None else values, interpret=interpret)


def read_gradients(bound: Bound) -> list[str]:
    """The outputs whose gradients the gradient ops read, XShape and other bookkeeping left out."""
    specs, _ = lowering.grad_ops(bound.op, no_grad(bound))
    read = {n for spec in specs for names in spec.inputs.values() for n in names}
    return [n for n in bound.outputs if n + GRAD in read]


def no_grad(bound: Bound) -> set[str]:
    """Gradient variables that are not requested."""
    wanted = set(bound.wrt())
    return {n + GRAD for n in bound.op.input_names() if n not in wanted}


def run_gradient(bound: Bound, values: dict[str, Any], cotangents: dict[str, Any]) -> dict[str, Any]:
    """Run the op's own gradient ops; returns gradients by input variable.

    Args:
        values: inputs and outputs of the forward op.
        cotangents: output variable -> its gradient.
    """
    env = {**values, **{n + GRAD: g for n, g in cotangents.items()}}
    specs, _ = lowering.grad_ops(bound.op, no_grad(bound))
    for spec in specs:
        op = OpView(spec.type, spec.inputs, spec.outputs, {**spec.attrs, "op_role": 1})
        env.update(run_op(bound, op, env))
    return {n: env[n + GRAD] for n in bound.wrt() if n + GRAD in env}


def random_like(rng: np.random.Generator, value: Any) -> Any:
    """Normal numbers in the shape and dtype of ``value``."""
    return jnp.asarray(rng.standard_normal(value.shape), value.dtype)
