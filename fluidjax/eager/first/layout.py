"""Primitives that move elements of any kind."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluidjax.eager.first.notation import Equation, Function, Make


def _bitcast(eqn: Equation) -> Function | None:
    dtype = eqn.dtype
    same = eqn.ins[0].dtype.itemsize == dtype.itemsize and np.dtype(np.bool_) not in (eqn.ins[0].dtype, dtype)
    return (lambda x: x.view(dtype)) if same else None


def _reshape(eqn: Equation) -> Function | None:
    shape = eqn.shape
    return (lambda x: x.reshape(shape)) if eqn.params.get("dimensions") is None else None


def _to_shape(eqn: Equation) -> Function:
    shape = eqn.shape
    return lambda x: x.reshape(shape)


def _broadcast(eqn: Equation) -> Function | None:
    if len(eqn.ins) != 1:
        return None  # sizes that are operands
    shape, dtype = eqn.shape, eqn.dtype
    inner = [1] * len(shape)
    for size, dim in zip(eqn.ins[0].shape, eqn.params["broadcast_dimensions"], strict=True):
        inner[dim] = size
    if inner == list(shape):
        return lambda x: x.reshape(shape)

    def broadcast(x: Any) -> Any:
        result = np.empty(shape, dtype)
        result[...] = x.reshape(inner)
        return result

    return broadcast


def _transpose(eqn: Equation) -> Function:
    order = eqn.params["permutation"]
    return lambda x: x.transpose(order)


def _concatenate(eqn: Equation) -> Function:
    axis = eqn.params["dimension"]
    return lambda *parts: np.concatenate(parts, axis)


def _stack(eqn: Equation) -> Function:
    axis = eqn.params["axis"]
    return lambda *parts: np.stack(parts, axis)


def _unstack(eqn: Equation) -> Function:
    axis = eqn.params["axis"]
    return lambda x: np.unstack(x, axis=axis)


def _slice(eqn: Equation) -> Function:
    params = eqn.params
    strides = params["strides"] or (1,) * len(params["start_indices"])
    bounds = zip(params["start_indices"], params["limit_indices"], strides, strict=True)
    window = tuple([slice(*bound) for bound in bounds])
    return lambda x: x[window]


def _split(eqn: Equation) -> Function:
    axis, places = eqn.params["axis"], np.cumsum(eqn.params["sizes"])[:-1].tolist()
    return lambda x: np.split(x, places, axis)


def _reverse(eqn: Equation) -> Function:
    axes = eqn.params["dimensions"]
    window = tuple([slice(None, None, -1 if k in axes else 1) for k in range(len(eqn.shape))])
    return lambda x: x[window]


def _tile(eqn: Equation) -> Function:
    reps = eqn.params["reps"]
    return lambda x: np.tile(x, reps)


def _pad(eqn: Equation) -> Function:
    shape, dtype = eqn.ins[0].shape, eqn.dtype
    config = [tuple(map(int, each)) for each in eqn.params["padding_config"]]
    spread = [n + max(n - 1, 0) * inner for n, (_, _, inner) in zip(shape, config, strict=True)]
    room = [max(low, 0) + n + max(high, 0) for n, (low, high, _) in zip(spread, config, strict=True)]
    steps = [(max(low, 0), inner + 1) for low, _, inner in config]
    inside = tuple([slice(start, start + n, step) for n, (start, step) in zip(spread, steps, strict=True)])
    kept = tuple([slice(max(-low, 0), n + min(high, 0)) for n, (low, high, _) in zip(room, config, strict=True)])

    def pad(x: Any, value: Any) -> Any:
        result = np.full(room, value, dtype)
        result[inside] = x
        return result[kept]

    return pad


def _iota(eqn: Equation) -> Function | None:
    if eqn.ins:
        return None
    at = eqn.params["dimension"]
    line = np.arange(eqn.shape[at], dtype=eqn.dtype).reshape([-1 if k == at else 1 for k in range(len(eqn.shape))])
    numbers = np.broadcast_to(line, eqn.shape)
    return lambda: numbers


def _window(starts: Any, sizes: Any, shape: Any) -> tuple[slice, ...]:
    """The part with these sizes at a position, which is clamped so that it fits."""
    begins = [min(max(int(s), 0), n - size) for s, size, n in zip(starts, sizes, shape, strict=True)]
    return tuple([slice(begin, begin + size) for begin, size in zip(begins, sizes, strict=True)])


def _dynamic_slice(eqn: Equation) -> Function | None:
    sizes, shape = eqn.shape, eqn.ins[0].shape
    if len(eqn.ins) != 1 + len(shape):
        return None
    return lambda x, *starts: x[_window(starts, sizes, shape)]


def _dynamic_update_slice(eqn: Equation) -> Function:
    sizes, shape = eqn.ins[1].shape, eqn.shape

    def update(x: Any, part: Any, *starts: Any) -> Any:
        result = np.array(x)
        result[_window(starts, sizes, shape)] = part
        return result

    return update


PRIMITIVES: dict[str, Make] = {
    "bitcast_convert_type": _bitcast,
    "broadcast_in_dim": _broadcast,
    "concatenate": _concatenate,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "iota": _iota,
    "pad": _pad,
    "reshape": _reshape,
    "rev": _reverse,
    "slice": _slice,
    "split": _split,
    "squeeze": _to_shape,
    "stack": _stack,
    "tile": _tile,
    "transpose": _transpose,
    "unstack": _unstack,
}
