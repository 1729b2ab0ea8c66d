"""Reading and writing elements along an axis or under a mask, as in Paddle 2."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lowering.ops.shared import ints
from lowering.ops.tensor.search import rows_where, valid
from lowering.program import VarInfo
from lowering.registry import op
from lowering.values import LoDArray, Meta, concrete, data_of, fill_padding

_ALONG = {"input": "Input", "index": "Index", "value": "Value"}


def _along(x, index, axis: int) -> tuple:
    """An index for ``x.at`` that replaces the axis by Index's numbers; Index has X's rank."""
    places = list(jnp.indices(index.shape, sparse=True))
    places[axis] = index
    return tuple(places)


@op(out="Result", slots=_ALONG, diff="input", lod={"Result": "input"})
def take_along_axis(input, index, *, Axis: int):
    """Result = the elements of Input at Index along ``Axis``; Index is broadcast against Input in other dimensions."""
    return jnp.take_along_axis(input, _widened(index, input, Axis), axis=Axis)


def _widened(index, like, axis: int):
    dims = list(np.broadcast_shapes(_without(index.shape, axis), _without(like.shape, axis)))
    dims.insert(axis % index.ndim, index.shape[axis])
    return jnp.broadcast_to(index, dims)


def _without(shape, axis: int):
    axis %= len(shape)
    return (*shape[:axis], *shape[axis + 1 :])


@take_along_axis.grad
def _(input: Meta, index, d_result, *, Axis):
    zeros = jnp.zeros(input.shape, d_result.dtype)
    return zeros.at[_along(zeros, _widened(index, input, Axis), Axis)].add(d_result)


_REDUCED = {"assign": "set", "add": "add", "mul": "multiply", "multiply": "multiply", "amax": "max", "amin": "min"}


@op(out="Result", slots=_ALONG, diff="input value", lod={"Result": "input"}, grad="vjp", reads="input index value")
def put_along_axis(input, index, value, *, Axis: int, Reduce: str = "assign", Include_self: bool = True):
    """Result = Input with Value written, added or multiplied at Index along ``Axis``."""
    if Reduce not in _REDUCED:
        raise ValueError(f"Reduce is {Reduce!r}; expected one of {sorted(_REDUCED)}; set one of them")
    if not Include_self and Reduce != "assign":
        raise ValueError("Include_self is false, which nothing is built for; expected true; add to zeros instead")
    places = _along(input, index, Axis)
    return getattr(input.at[places], _REDUCED[Reduce])(jnp.broadcast_to(value, index.shape).astype(input.dtype))


def _infer_selected(op, var_of):
    return {op.outputs["Y"][0]: VarInfo((-1,), var_of(op.inputs["X"][0]).dtype)}


@op(out="Y", diff="x", lod=None, infer=_infer_selected, grad="vjp", reads="x mask")
def masked_select(x, mask):
    """Y [n] = the elements of X where Mask holds, in order. The program is compiled for each mask."""
    x, mask = jnp.broadcast_arrays(x, concrete(mask, "masked_select: the mask"))
    return x.reshape(-1)[np.flatnonzero(concrete(mask, "masked_select: the mask"))]


@masked_select.with_room
def _chosen(x: Any, mask: Any) -> LoDArray:
    values, chosen = jnp.broadcast_arrays(data_of(x), jnp.asarray(data_of(mask)) & valid(mask))
    return rows_where(chosen, lambda *at: values[at])


def _with(value: Any, data: Any) -> Any:
    return value.with_data(data) if isinstance(value, LoDArray) else data


@masked_select.grad_with_room
def _(x: Any, mask: Any, d_y: Any):
    given = fill_padding(data_of(d_y), getattr(d_y, "nrows", None), backward=True)
    chosen = jax.vjp(lambda values: _chosen(_with(x, values), mask).data, data_of(x))[1]
    return _with(x, chosen(given)[0])


@op(diff="x add_value", slots={"add_value": "AddValue"})
def index_add(x, index, add_value, *, axis: int = 0):
    """Out = X with AddValue's slices added at Index along ``axis``."""
    return x.at[(slice(None),) * (axis % x.ndim) + (index,)].add(add_value)


@index_add.grad
def _(index, add_value: Meta, d_out, *, axis):
    return d_out, jnp.take(d_out, index, axis=axis)


@op(
    slots={"x": "x", "indices": "indices", "value": "value"}, out="out", lod=None, diff="x value", grad="vjp",
    reads="x indices value",
)  # fmt: skip
def index_put(x, indices: list, value, *, accumulate: bool = False):
    """out = x with value written (or added) at the positions jointly given by the index tensors.

    A mask gives the positions where it holds. Alone, and with one value for all of these, it is a selection; otherwise
    the program is compiled for each mask.
    """
    mask = indices[0]
    rest = x.ndim - mask.ndim
    if mask.dtype == bool and len(indices) == 1 and (value.ndim <= rest or value.shape[: -rest or None] == (1,)):
        mask = jnp.expand_dims(mask, tuple(range(mask.ndim, x.ndim)))
        return jnp.where(mask, x + value if accumulate else value, x)
    at = x.at[tuple(concrete(i, "index_put: the mask") if i.dtype == bool else i for i in indices)]
    return at.add(value) if accumulate else at.set(value)


@op(diff="x", grad="vjp", reads="x repeats_tensor", slots={"repeats_tensor": "RepeatsTensor"}, lod=None)
def repeat_interleave(x, repeats_tensor=None, *, Repeats: int = 0, dim: int = 0):
    """Out = X with each slice along ``dim`` repeated ``Repeats`` times, or as given by RepeatsTensor."""
    times = Repeats if repeats_tensor is None else np.array(ints(repeats_tensor, "repeat_interleave: the repeats"))
    if isinstance(times, np.ndarray):
        return jnp.repeat(x, times, axis=dim, total_repeat_length=int(times.sum()))
    return jnp.repeat(x, times, axis=dim)
