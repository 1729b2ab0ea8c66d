"""Assignment to slices: ``x[1:3, ::2] = value`` in Paddle 2's static programs."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from lowering.dtypes import to_numpy
from lowering.ops.shared import shape_from
from lowering.registry import Float64s, Longs, Scalars, op
from lowering.values import Meta


def _index(rank: int, axes, bounds, decreased) -> tuple[Any, ...]:
    """What Python would write between the brackets."""
    index: list[Any] = [slice(None)] * rank
    for axis, start, end, step in zip(axes, *bounds, strict=True):
        if axis in decreased:
            index[axis] = start
        else:  # a falling slice that reaches the first element ends before it
            index[axis] = slice(start, None if step < 0 and end < -(2**30) or end >= 2**30 else end, step)
    return tuple(index)


def _bounds(axes, attrs, tensors, dims) -> list[list[int]]:
    starts, ends, steps = (shape_from(a, None, t, "set_value: a bound") for a, t in zip(attrs, tensors, strict=True))
    # A falling slice through the first element ends at -1, or at -(size + 1), which Python takes for places.
    falls = (s < 0 and (e == -1 or e < -dims[a]) for a, e, s in zip(axes, ends, steps, strict=True))
    ends = [-(2**31) if through else e for through, e in zip(falls, ends, strict=True)]
    return [starts, ends, steps]


def _fitted(value, dims: tuple[int, ...], none_axes, decreased):
    """The value without the dims that ``None`` made in the index."""
    if none_axes and value.ndim:
        before = [n - sum(d < n for d in decreased) for n in none_axes]
        drop = [a for a in before if a < value.ndim and value.shape[a] == 1 and value.ndim > len(dims)]
        value = jnp.squeeze(value, tuple(drop))
    while value.ndim > len(dims) and value.shape[0] == 1:
        value = value[0]
    return jnp.broadcast_to(value, dims)


def _given(value_tensor, dtype: int, shape, kinds) -> Any:
    if value_tensor is not None:
        return value_tensor
    numbers = next((list(v) for v in kinds if len(v)), [])
    return np.asarray(numbers).astype(to_numpy(dtype)).reshape(tuple(shape))


@op(
    slots={"input": "Input", "value_tensor": "ValueTensor"}, diff="input value_tensor", lod="input",
    inplace={"Out": "input"},
)  # fmt: skip
def set_value(
    input,
    value_tensor=None,
    starts_tensor_list: list = None,
    ends_tensor_list: list = None,
    steps_tensor_list: list = None,
    *,
    axes: Longs,
    starts: Longs = (),
    ends: Longs = (),
    steps: Longs = (),
    decrease_axes: Longs = (),
    none_axes: Longs = (),
    dtype: int = 5,
    shape: Longs = (),
    values: Scalars = (),
    bool_values: list[int] = (),
    fp32_values: list[float] = (),
    int32_values: list[int] = (),
    int64_values: Longs = (),
    fp64_values: Float64s = (),
    fp16_values: list[float] = (),
):
    """Out = Input with ValueTensor, or the listed values, broadcast into the slice given by the bounds.

    Before version 4, the values are in the attribute for their type, since then in ``values``.
    """
    lists = (starts_tensor_list, ends_tensor_list, steps_tensor_list)
    index = _part(input, axes, (starts, ends, steps), lists, decrease_axes)
    kinds = (values, bool_values, fp32_values, int32_values, int64_values, fp64_values, fp16_values)
    value = jnp.asarray(_given(value_tensor, dtype, shape, kinds)).astype(input.dtype)
    dims = jnp.empty(input.shape, bool)[index].shape
    return input.at[index].set(_fitted(value, dims, none_axes, decrease_axes))


def _part(like, axes, attrs, lists, decrease_axes) -> tuple[Any, ...]:
    steps = attrs[2] or [1] * len(axes)
    bounds = _bounds(axes, (attrs[0], attrs[1], steps), lists, like.shape)
    return _index(len(like.shape), axes, bounds, list(decrease_axes))


@set_value.grad
def _(
    value_tensor: Meta = None,
    d_out=None,
    starts_tensor_list: list = None,
    ends_tensor_list: list = None,
    steps_tensor_list: list = None,
    *,
    axes,
    starts,
    ends,
    steps,
    decrease_axes,
    none_axes,
):
    """The slice assigned passes no gradient to Input; the value receives it, summed over broadcast dimensions."""
    lists = (starts_tensor_list, ends_tensor_list, steps_tensor_list)
    index = _part(d_out, axes, (starts, ends, steps), lists, decrease_axes)
    d_input = d_out.at[index].set(0)
    if value_tensor is None:
        return d_input, None
    part = d_out[index]
    lead = part.ndim - len(value_tensor.shape)
    if lead >= 0:
        part = part.sum(axis=tuple(range(lead))) if lead else part
        over = tuple(i for i, n in enumerate(value_tensor.shape) if n == 1 and part.shape[i] != 1)
        part = part.sum(axis=over, keepdims=True) if over else part
    return d_input, part.reshape(value_tensor.shape)
