"""Primitives that XLA computes for NumPy, because they round in XLA's own way.

Products and long sums are compiled for their shapes; each is a call of XLA's library, a sixth of what compiling code
takes. Functions of single numbers are compiled for arrays of two sizes, which serve all shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import jax
import numpy as np

from fluidjax.eager.first.notation import Equation, Function, Make

SIZES = 256, 4096  # numbers that an executable takes
_MOST = 8  # calls of it for one array


def called(name: str, eqn: Equation, orders: Sequence[Any] = ()) -> Function:
    """A primitive with one result, compiled for the shapes of its inputs.

    Args:
        orders: for each input, how it is transposed first, None if it is not; () for none.
    """
    function = _compiled(name, _frozen(eqn.params), tuple(orders))
    return lambda *values: np.asarray(function(*values))


def elementwise(name: str) -> Make:
    """A primitive that computes each number from those at the same position."""

    def make(eqn: Equation) -> Function | None:
        count = int(np.prod(eqn.shape))
        if any(shape != eqn.ins[0].shape for shape, _ in eqn.ins) or count > _MOST * SIZES[-1]:
            return None
        return each(name, eqn.shape, eqn.params)

    return make


def each(name: str, shape: tuple[int, ...], params: Mapping[str, Any]) -> Function:
    """See ``elementwise``; for arrays of a shape."""
    function, count = _compiled(name, _frozen(params)), int(np.prod(shape))
    size = SIZES[0] if count <= SIZES[0] else SIZES[1]
    padded = -(-count // size) * size

    def compute(*values: Any) -> Any:
        rows = [_padded(value, count, padded).reshape(-1, size) for value in values]
        found = [np.asarray(function(*row)) for row in zip(*rows, strict=True)]
        return (np.concatenate(found) if len(found) > 1 else found[0])[:count].reshape(shape)

    return compute


def _padded(value: Any, count: int, size: int) -> Any:
    found = np.zeros(size, value.dtype)
    found[:count] = np.reshape(value, -1)
    return found


def _frozen(params: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple([(key, params[key]) for key in sorted(params)])


@cache
def _compiled(name: str, params: tuple[tuple[str, Any], ...], orders: tuple[Any, ...] = ()) -> Callable[..., Any]:
    primitive = getattr(jax.lax, f"{name}_p")

    def run(*values: Any) -> Any:
        if orders:
            values = tuple([v if o is None else v.transpose(o) for v, o in zip(values, orders, strict=True)])
        return primitive.bind(*values, **dict(params))

    run.__name__ = name
    return jax.jit(run)
