"""The ops of a recorded case run by the tracer of eager mode, as a backend beside those of ``backend``.

The ops of the forward pass are traced one by one; gradients come from the tape, not from the gradient ops that the
recording's program has.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import fluidjax as fluid
from fluidjax.base.mode import current_tracer
from fluidjax.eager.variables.varbase import VarBase
from lowering import get_op
from lowering.program import OpView
from tests.golden.oprunner import judged_outputs
from tests.golden.recordings import OpCase, Variable
from tests.golden.values import Rows, Tensor, Value
from tests.golden.views import program_view


def traceable(case: OpCase) -> bool:
    """Whether eager mode has such a run: one op of a forward pass on tensors, without blocks and draws."""
    values = [v.value for v in (*case.variables("inputs"), *judged_outputs(case))]
    if case.record["random"] or any(not isinstance(v, Tensor) or v.array is None for v in values):
        return False
    single, ops = "loss" in case.record or len(program_view(case.program).blocks[0].ops) == 1, _forward(case)
    return single and bool(ops) and all(get_op(op.type).kind in ("plain", "sequence") for op in ops)


def traced(case: OpCase, wanted: list[str]) -> dict[str, Value]:
    """The values of ``wanted``, outputs and gradients, from ops traced under a guard."""
    with fluid.dygraph.guard(fluid.CPUPlace()):
        return _traced(case, wanted)


def _traced(case: OpCase, wanted: list[str]) -> dict[str, Value]:
    grads = {v.name: v.record["input"] for v in case.variables("grads")}
    env = {v.name: _variable(v, v.name in grads.values()) for v in case.variables("inputs")}
    for op in _forward(case):
        outputs = {slot: [env.get(n, VarBase(name=n)) for n in names] for slot, names in op.outputs.items()}
        inputs = {slot: [env[n] for n in names] for slot, names in op.inputs.items() if names}
        current_tracer().trace_op(op.type, inputs, outputs, op.attrs)
        env.update({v.name: v for made in outputs.values() for v in made})
    found = {name: _value(env[name]) for name in wanted if name in env}
    if grads:
        env[case.record["loss"]["var"]].backward()
        found |= {name: _gradient(env[given]) for name, given in grads.items()}
    return {name: value for name, value in found.items() if value is not None}


def _forward(case: OpCase) -> list[OpView]:
    return [op for op in program_view(case.program).blocks[0].ops if not op.is_backward]


def _variable(given: Variable, wanted: bool) -> VarBase:
    value: Any = given.value
    var = fluid.dygraph.to_variable(value.array, name=given.name)
    var.stop_gradient = not wanted
    if value.lod:
        var.value().get_tensor().set_lod(value.lod)
    return var


def _value(var: VarBase) -> Value | None:
    return Tensor(var.numpy(), [list(level) for level in var.lod()]) if var._value is not None else None


def _gradient(var: VarBase) -> Value | None:
    """The gradient; dense ones are arrays without lengths of sequences, sparse ones (values, rows)."""
    found = var.gradient()
    if isinstance(found, tuple):
        values, rows = found
        return Rows(np.asarray(rows), var.shape[0], values)
    return None if found is None else Tensor(found)
