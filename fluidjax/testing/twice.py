"""Gradients of gradients of a case's op, through ``fluid.gradients``, against differences of the first gradients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fluidjax as fluid
import lowering
from fluidjax.backward import gradients
from fluidjax.framework.view import program_view
from fluidjax.testing.case import Case
from fluidjax.testing.checks import Mismatch
from fluidjax.testing.run import Bound, bind, no_grad, read_gradients, run_forward
from lowering.dtypes import from_numpy, is_float
from lowering.engine.runner import Runner
from lowering.engine.x64 import in_x64
from lowering.values import LoDArray, data_of

STEP = 1e-4
RTOL = 1e-5


@dataclass
class Second:
    """A program with <c, op(x)>, its gradient g, <d, g>, and the gradient of that (and so on)."""

    program: Any
    feed: dict[str, Any]
    wrt: list[str]
    sums: list[str]  # <c, op(x)>, <d, g>, <e, gg> ...
    last: dict[str, str]  # variable -> its gradient of the highest order


def build(case: Case, rng: np.random.Generator, order: int = 2) -> Second | None:
    """The program of a case; None where nothing of it is differentiable.

    Raises:
        ValueError: the op's gradient op cannot be differentiated.
    """
    bound = bind(case, rng)
    wrt = list(bound.wrt())
    if not wrt or not lowering.grad_ops(bound.op, no_grad(bound))[0]:
        return None
    outs = jax.eval_shape(lambda: run_forward(bound))
    read = [n for n in read_gradients(bound) if is_float(outs[n].dtype)]
    if not read:
        return None
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        block = main.global_block()
        _declare(block, bound, outs, wrt)
        block.append_op(
            type=bound.op.type, inputs=dict(bound.op.inputs), outputs=dict(bound.op.outputs), attrs=dict(case.attrs)
        )
        for name, out in outs.items():
            block.var(name).desc.set_shape(list(out.shape))  # the declared one where the op takes it from a tensor
        feed = dict(bound.values)
        sums = [_dot(block, {n: outs[n] for n in read}, feed, rng)]
        found: dict[str, str] = {}
        for _ in range(order):
            grads = gradients([block.var(sums[-1])], [block.var(n) for n in wrt])
            found = {n: g.name for n, g in zip(wrt, grads, strict=True) if g is not None}
            if not found:
                break
            sums.append(_dot(block, {g: bound.values[n] for n, g in found.items()}, feed, rng))
    return Second(main, feed, wrt, sums, found)


def _declare(block: Any, bound: Bound, outs: Mapping[str, Any], wrt: list[str]) -> None:
    for name, value in {**bound.values, **outs}.items():
        lod = len(value.lod) if isinstance(value, LoDArray) else 0
        dtype = from_numpy(value.dtype)
        block.create_var(name=name, shape=list(value.shape), dtype=dtype, lod_level=lod, stop_gradient=False)
        block.var(name).stop_gradient = name in bound.values and name not in wrt
    for name in set(bound.outputs) - set(outs):
        block.create_var(name=name, dtype="float64")


def _dot(block: Any, values: Mapping[str, Any], feed: dict[str, Any], rng: np.random.Generator) -> str:
    """Append the sum of all values times random constants, which are fed; returns its name."""
    parts = []
    for name, like in values.items():
        factor = block.create_var(
            name=fluid.unique_name.generate("factor"), shape=list(like.shape), dtype="float64", stop_gradient=True
        )
        feed[factor.name] = rng.standard_normal(like.shape)
        product = block.create_var(name=fluid.unique_name.generate("product"), dtype="float64", shape=list(like.shape))
        block.append_op(
            type="elementwise_mul", inputs={"X": [name], "Y": [factor.name]}, outputs={"Out": [product.name]}
        )
        part = block.create_var(name=fluid.unique_name.generate("part"), dtype="float64", shape=[1])
        block.append_op(
            type="reduce_sum", inputs={"X": [product.name]}, outputs={"Out": [part.name]}, attrs={"reduce_all": True}
        )
        parts.append(part.name)
    total = block.create_var(name=fluid.unique_name.generate("total"), dtype="float64", shape=[1])
    block.append_op(type="sum", inputs={"X": parts}, outputs={"Out": [total.name]})
    return total.name


@in_x64
def check_higher(case: Case, rng: np.random.Generator, order: int = 2) -> bool:
    """The gradient of the highest order along a random direction against a central difference of the order before.

    Returns:
        Whether there was something to compare.
    """
    second = build(case, rng, order)
    if second is None or len(second.sums) < order:
        return False
    directions = {n: rng.standard_normal(np.shape(data_of(second.feed[n]))) for n in second.wrt}
    at = jax.jit(partial(_at, second, directions, second.sums[order - 1]))
    _, along, size = (float(v) for v in at(0.0))
    below = {k: float(at(k * STEP)[0]) for k in (-2, -1, 1, 2)}
    slope = (8 * (below[1] - below[-1]) - (below[2] - below[-2])) / (12 * STEP)
    scale = max(1.0, size, abs(slope))
    if not abs(along - slope) <= RTOL * scale:
        raise Mismatch(f"{case.name}: gradient of order {order} is {along:.9g} along a direction, expected {slope:.9g}")
    return True


def _at(second: Second, directions: Mapping[str, Any], name: str, step: Any) -> tuple[Any, Any, Any]:
    """At x + step * directions: variable ``name``, <highest gradient, directions>, and the size of what that sums."""
    moved = {n: _moved(second.feed[n], step * u) for n, u in directions.items()}
    after = Runner(program_view(second.program), key=jax.random.key(0)).run_block(0, {**second.feed, **moved})
    terms = [data_of(after[g]) * directions[n] for n, g in second.last.items()]
    return data_of(after[name]).reshape(()), sum(jnp.sum(t) for t in terms), sum(jnp.sum(jnp.abs(t)) for t in terms)


def _moved(value: Any, by: Any) -> Any:
    return value.with_data(value.data + by) if isinstance(value, LoDArray) else value + by
