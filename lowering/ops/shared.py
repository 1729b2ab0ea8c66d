"""Small helpers of several op families."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax._src.config import eager_constant_folding
from jax._src.core import trace_state_clean

from lowering.dtypes import SELECTED_ROWS
from lowering.host_arrays import to_device, zeros
from lowering.program import EMPTY, VarInfo
from lowering.registry import WISE, Wise
from lowering.sizes.counts import sizes_of
from lowering.symbols import is_symbol
from lowering.values import RowCounts, SelectedRows, concrete


def transpose_of(fn: Callable[[Any], Any], like: Any, d_out: Any) -> Any:
    """The gradient of a linear function ``fn`` of one array shaped like ``like`` (an array or a Meta)."""
    shape = jax.ShapeDtypeStruct(tuple(like.shape), like.dtype)
    if d_out.ndim == 0:  # a scalar of Paddle 2.5, where Fluid's op makes a [1]
        d_out = d_out.reshape(jax.eval_shape(fn, shape).shape)
    (grad,) = jax.linear_transpose(fn, shape)(d_out)
    return grad


def zero_rows(x: Any) -> Any:
    """The XShape output: no elements; its dims after the first are X's."""
    return no_elements((0, *x.shape), x.dtype)


def no_elements(shape: tuple[int, ...], dtype: Any) -> Any:
    """An array with a size of 0, known while tracing; but sizes may be symbols of an export."""
    make = np.zeros if all(isinstance(n, int) for n in shape) else jnp.zeros
    return make(shape, dtype)


def round_half_away(x: Any, xp: Any = jnp) -> Any:
    """C's round: halves go away from zero."""
    return xp.sign(x) * xp.floor(xp.abs(x) + 0.5)


def own_names(slots: str) -> dict[str, str]:
    """Slots that are spelt as their parameters: those of the ops that Paddle 2 generates from its list of kernels."""
    return {name: name for name in slots.split()}


def wide(x: Any) -> Any:
    """x in at least float32."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def off_rows(attrs: Mapping[str, Any], ndim: int) -> Wise | None:
    """Rows rule of an op that works along ``axis``: row-wise unless that is the row axis."""
    return WISE if int(attrs["axis"]) % max(ndim, 1) else None


def ints(values: Any, what: str) -> list[int]:
    """Host integers from a tensor of integers; ``RowSize`` for counts of rows."""
    if isinstance(values, RowCounts):
        return sizes_of(values)
    return [v if is_symbol(v) else int(v) for v in concrete(values, what).reshape(-1).tolist()]


def shape_from(attr: Sequence[int], tensor: Any = None, tensors: Sequence[Any] | None = None, what: str = "shape"):
    """A list of integers given by one of: a list of [1] tensors, one tensor, an attribute (in this order)."""
    if tensors:
        return [ints(t, what)[0] for t in tensors]
    if tensor is not None:
        return ints(tensor, what)
    return list(attr)


def names_in(op: Any, slot: str) -> list[str]:
    """The variables bound to an input slot."""
    return [n for n in op.inputs.get(slot, ()) if n != EMPTY]


def outputs_like(op: Any, slot: str, info: VarInfo) -> dict[str, VarInfo]:
    """``info`` for every variable bound to output slot ``slot``."""
    return {n: info for n in op.outputs.get(slot, ()) if n != EMPTY}


def declared_shape(op: Any, var_of: Any, attr: str, tensor: str, tensors: str) -> list[int] | None:
    """What a shape argument says when the program is built; -1 for a dim that a tensor will give."""
    listed = [int(v) for v in op.attrs.get(attr) or []]
    if names_in(op, tensors):
        return listed or [-1] * len(names_in(op, tensors))
    given = names_in(op, tensor)
    if given and not listed:
        dims = var_of(given[0]).shape
        return [-1] * dims[0] if dims and dims[0] >= 0 else None
    return listed


def concrete_scalar(value: Any, what: str) -> Any:
    """The one element of a tensor as a Python number."""
    return concrete(value, what).reshape(-1).item(0)


def into_declared(value: Any, ctx: Any, height: int) -> Any:
    """``value``, or SelectedRows without row numbers around it where the output variable is declared sparse."""
    var = ctx.out_var("Out")
    if var is None or var.type != SELECTED_ROWS:
        return value
    return SelectedRows(np.zeros((0,), np.int64), value, height)


def full(dims: Sequence[int], fill: Any, dtype: Any) -> Any:
    """A tensor of one value; NumPy makes it where it is computed at once: XLA would compile a kernel for each shape."""
    if not (trace_state_clean() or eager_constant_folding.value):
        return jnp.full(dims, fill, dtype)
    zero = not fill and not np.signbit(fill)
    return to_device(zeros(dims, dtype) if zero else np.full(dims, fill, dtype))
