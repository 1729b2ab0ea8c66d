"""print: displays a value and passes it on unchanged."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from lowering.engine.context import Context
from lowering.engine.gradients.grad_maker import GradMaker
from lowering.mesh import over_mesh
from lowering.ops.flow.arrays import shape_like
from lowering.program import OpSpec
from lowering.registry import Value, op
from lowering.values import LoDArray, SelectedRows

# How Fluid abbreviates the element types it prints.
_LETTERS = {"float32": "f", "float64": "d", "int64": "l", "int32": "i", "bool": "b", "int16": "s", "uint8": "h"}


def _number(value: Any) -> str:
    return f"{float(value):.6g}" if np.issubdtype(np.asarray(value).dtype, np.floating) else str(int(value))


def _text(attrs: dict[str, Any], name: str, data: np.ndarray, lod: list[np.ndarray]) -> str:
    """What Fluid prints: seconds and message, then name, shape, dtype and LoD as asked, then the first elements."""
    lines = [f"{int(time.time())}\t{attrs['message']}\tThe place is:CPUPlace"]
    if attrs["print_tensor_name"]:
        lines.append(f"Tensor[{name}]")
    if attrs["print_tensor_shape"]:
        lines.append(f"\tshape: [{''.join(f'{d},' for d in data.shape)}]")
    if attrs["print_tensor_type"]:
        lines.append(f"\tdtype: {_LETTERS.get(data.dtype.name, data.dtype.name)}")
    if attrs["print_tensor_lod"] and lod:
        levels = "".join(f"[ {''.join(f'{o},' for o in level)} ]" for level in lod)
        lines.append(f"\tLoD: [{levels}]")
    count = data.size if attrs["summarize"] < 0 else min(attrs["summarize"], data.size)
    lines.append(f"\tdata: {''.join(_number(v) + ',' for v in data.ravel()[:count])}")
    return "\n".join(lines)


def _printer(attrs: dict[str, Any], name: str) -> Callable[..., None]:
    """A function that prints what it is called with, the first ``first_n`` times."""
    calls = itertools.count(1)

    def show(data: Any, lod: Any, nrows: Any, nseq: Any) -> None:
        if 0 < attrs["first_n"] < next(calls):
            return
        rows = np.asarray(data) if nrows is None else np.asarray(data)[: int(nrows)]
        count, levels = None if nseq is None else int(nseq), []
        for level in lod:
            levels.append(np.asarray(level) if count is None else np.asarray(level)[: count + 1])
            count = int(levels[-1][-1])
        print(_text(attrs, name, rows, levels), flush=True)

    return show


def _show(value: Any, attrs: dict[str, Any], ctx: Context) -> None:
    if isinstance(value, SelectedRows):
        value = value.to_dense()
    show = _printer(attrs, ctx.op.inputs["In"][0])
    parts = (value.data, value.lod, value.nrows, value.nseq) if isinstance(value, LoDArray) else (value, (), None, None)
    # Values known while tracing are printed by the run too, not by the trace. JAX orders callbacks on one device only.
    jax.debug.callback(show, *parts, ordered=not over_mesh())


@op("print", slots={"in_": "In"}, kind="block", infer=shape_like("Out", "In"))
def print_(
    in_: Value,
    *,
    first_n: int,
    message: str,
    summarize: int,
    print_tensor_name: bool,
    print_tensor_type: bool,
    print_tensor_shape: bool,
    print_tensor_lod: bool,
    print_phase: str = "BOTH",
    is_forward: bool = True,
    ctx,
):
    """Out = In, printed if the phase is BOTH or that of the op, at most ``first_n`` times if that is positive."""
    phase = print_phase.upper()
    if phase == "BOTH" or (phase == "FORWARD") == is_forward:
        attrs = {
            "first_n": first_n,
            "message": message,
            "summarize": summarize,
            "print_tensor_name": print_tensor_name,
            "print_tensor_type": print_tensor_type,
            "print_tensor_shape": print_tensor_shape,
            "print_tensor_lod": print_tensor_lod,
        }
        _show(in_, attrs, ctx)
    return in_


@print_.grad_maker
def _(g: GradMaker):
    attrs = {**g.attrs, "is_forward": False}
    return [OpSpec("print", {"In": g.output_grad("Out")}, {"Out": g.input_grad("In")}, attrs)]
