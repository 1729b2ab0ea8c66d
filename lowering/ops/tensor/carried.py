"""Ops that pass values on, found in Paddle 2's exports besides ``assign``."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from lowering.dtypes import to_numpy
from lowering.ops.shared import shape_from
from lowering.registry import WISE, Longs, op


def _same(name: str, doc: str, **slots: str) -> None:
    def rule(x):
        return x

    rule.__doc__ = doc
    op(name, rows=WISE, linear=True, grad="vjp", reads="x", **({"slots": {"x": "x"}, "out": "out"} if slots else {}))(
        rule
    )


_same("share_data", "Out = X; both are one memory in Paddle, which nobody can tell here.")
_same("npu_identity", "Out = X.", x="x")


def _moved(name: str, doc: str) -> None:
    def rule(x, *, dst_place_type: int = 0):
        del dst_place_type
        return x

    rule.__doc__ = doc
    op(name, rows=WISE, linear=True, diff="")(rule)


_moved("memcpy", "Out = X in another memory; where a value lies is the compiler's business here.")
_moved("memcpy_h2d", "Out = X, from the host to the device.")
_moved("memcpy_d2h", "Out = X, from the device to the host.")


@op(out="Out* XOut*", lod=None, diff="")
def share_buffer(x: list, *, share_dims_and_dtype: list[bool] = ()):
    """Out = X, element by element, and XOut = X."""
    del share_dims_and_dtype
    return x, x


@op(diff="", rows=WISE)
def depend(x, dep: list = None):
    """Out = X, once all of Dep are available; the order follows from data flow."""
    del dep
    return x


@op(
    out="Out", lod=None, fold=True,
    slots={"shape_tensor": "ShapeTensor", "shape_tensor_list": "ShapeTensorList"},
)  # fmt: skip
def empty(shape_tensor=None, shape_tensor_list: list = None, *, shape: Longs = (), dtype: int = 5):
    """Out = a tensor of that shape. Paddle leaves it uninitialised; here it is zero."""
    return jnp.zeros(shape_from(shape, shape_tensor, shape_tensor_list, "empty: the shape"), to_numpy(dtype))


@op(rows=WISE)
def fill_any(x, *, value: float = 0.0, value_float: float = 0.0, value_int: int = 0):
    """Out = X's shape filled with ``value``; before Paddle 2.6 ``value_float``, or ``value_int`` for integers."""
    former = value_float if jnp.issubdtype(x.dtype, jnp.floating) else value_int
    return jnp.full_like(x, value or former)


@fill_any.grad
def _(d_out):
    return jnp.zeros_like(d_out)


@op(out="out", lod=None, fold=True)
def full_int_array(*, value: Longs, dtype: int = 5, place: int = 1):
    """out = the listed integers."""
    return np.asarray(value, to_numpy(dtype))
