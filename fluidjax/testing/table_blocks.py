"""Every smooth case of the op table as a block: its inputs are parameters, one of them moved by the block's input.

The block's input, a matrix, is brought into (-1, 1) and mapped to the shape of one of the op's inputs; a fiftieth of it
is added to the values that the case draws. These keep away from kinks and borders by more than that. The op's outputs
are mapped back to a matrix.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import numpy as np

import fluidjax as fluid
import lowering
from fluidjax.base.enums import VarType
from fluidjax.testing.builder import BATCH, WIDTH, Block, Builder
from fluidjax.testing.case import Case
from fluidjax.testing.run import Bound, bind, no_grad, read_gradients, run_forward
from fluidjax.testing.table import table
from lowering.dtypes import is_float
from lowering.engine.x64 import in_x64
from lowering.values import LoDArray

NUDGE = 0.02
_SIZE = BATCH * WIDTH

layers = fluid.layers


@cache
def block_cases() -> tuple[Case, ...]:
    """The cases that can be blocks: differentiable ones of dense inputs with elements, in the table's order."""
    return tuple(c for c in table() if _usable(c))


def _usable(case: Case) -> bool:
    if not case.smooth or not lowering.get_op(case.op).differentiable:
        return False
    bound = bind(case, np.random.default_rng(0))
    values = bound.values.values()
    if any(isinstance(v, LoDArray) or not v.size for v in values) or not bound.wrt():
        return False
    return bool(lowering.grad_ops(bound.op, no_grad(bound))[0] and _float_outputs(bound))


@in_x64
def _float_outputs(bound: Bound) -> dict[str, Any]:
    """Shape and dtype of the outputs whose gradients the gradient op reads."""
    values = jax.eval_shape(lambda: run_forward(bound))
    return {n: values[n] for n in read_gradients(bound) if is_float(values[n].dtype)}


def case_block(case: Case) -> Block:
    """The case's op as a block."""
    return lambda build, x: apply_case(build, case, x)


def apply_case(build: Builder, case: Case, x: Any) -> Any:
    """The case's op applied to ``x``; a matrix [BATCH, WIDTH]."""
    bound = bind(case, build.rng, np.float32)
    moved = build.choose(bound.wrt())
    variables = {name: _input(build, bound, name) for name in bound.values}
    variables[moved] = layers.elementwise_add(variables[moved], _shaped(build, x, bound.values[moved].shape))
    outputs = _append(bound, variables)
    return _matrix(build, [(outputs[n], value.size) for n, value in _float_outputs(bound).items()])


def _input(build: Builder, bound: Bound, name: str) -> Any:
    value = np.asarray(bound.values[name])
    return build.valued_parameter(value) if name in bound.wrt() else build.constant(value)


def _shaped(build: Builder, x: Any, shape: tuple[int, ...]) -> Any:
    """``x`` between -NUDGE and NUDGE in another shape."""
    flat = layers.reshape(layers.tanh(x), [1, _SIZE])
    spread = layers.mul(flat, build.constant(build.rng.uniform(-1, 1, (_SIZE, int(np.prod(shape)))) / _SIZE))
    return layers.reshape(layers.scale(spread, scale=NUDGE), list(shape))


def _append(bound: Bound, variables: dict[str, Any]) -> dict[str, Any]:
    """The outputs by the names that ``bound`` has for them."""
    block = fluid.default_main_program().global_block()
    made = {n: block.create_var(name=f"{n}.{len(block.vars)}", dtype="float32") for n in bound.outputs}
    block.append_op(
        type=bound.op.type,
        inputs={slot: [variables[n] for n in names] for slot, names in bound.op.inputs.items()},
        outputs={slot: [made[n] for n in names] for slot, names in bound.op.outputs.items()},
        attrs=dict(bound.case.attrs),
    )
    return made


def _matrix(build: Builder, outputs: list[tuple[Any, int]]) -> Any:
    """The outputs, each with its size, mapped to one matrix."""
    parts = []
    for out, size in outputs:
        weight = build.constant(build.rng.uniform(-1, 1, (size, _SIZE)) / np.sqrt(size))
        if np.prod(out.shape) not in (size, -size):  # im2sequence declares a row for each image, as in Fluid
            out.desc.set_shape([-1, *out.shape[1:]])
        out = layers.cast(out, "float32") if out.dtype == VarType.FP64 else out
        parts.append(layers.mul(layers.reshape(out, [1, size]), weight))
    return layers.reshape(layers.tanh(layers.sums(parts)), [BATCH, WIDTH])
