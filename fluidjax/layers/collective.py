"""Collective communication between devices, as layers. On a single device, each returns its input."""

from __future__ import annotations

from typing import Any

from fluidjax import unique_name
from fluidjax.base.errors import ArgumentError
from fluidjax.framework import Variable
from fluidjax.layer_helper import LayerHelper

_REDUCTIONS = ("sum", "prod", "max", "min")


def _index_of(reduce_type: str) -> int:
    if reduce_type not in _REDUCTIONS:
        raise TypeError(f"reduce type can only be one of {', '.join(_REDUCTIONS)}, received {reduce_type!r}; pass one")
    return _REDUCTIONS.index(reduce_type)


def _result(x: Variable, helper: LayerHelper) -> Variable:
    key = "tmp" if helper.layer_type == "allreduce" else helper.layer_type
    name = unique_name.generate(f"{x.name}.{key}")
    return helper.create_variable(name=name, shape=list(x.shape), dtype=x.dtype, type=x.type, persistable=x.persistable)


def _append(op_type: str, x: Variable, out: Variable | None, attrs: dict[str, Any]) -> Variable:
    helper = LayerHelper(op_type)
    out = _result(x, helper) if out is None else out
    helper.append_op(type=op_type, inputs={"X": [x]}, outputs={"Out": [out]}, attrs=attrs)
    return out


def _allreduce(x: Variable, out: Variable | None = None, reduce_type: str = "sum", sync_mode: bool = False) -> Variable:
    """The sum, product, maximum or minimum of ``x`` over all devices. Raises TypeError for other reductions."""
    attrs = {"reduce_type": _index_of(reduce_type), "sync_mode": sync_mode}
    return _append("allreduce", x, out, attrs)


def _broadcast(x: Variable, root: int, sync_mode: bool = False) -> Variable:
    """Replace ``x``, in place, with the value on device ``root``."""
    return _append("broadcast", x, x, {"sync_mode": sync_mode, "root": root})


def _c_allreduce(
    x: Variable, out: Variable | None = None, reduce_type: str = "sum", ring_id: int = 0, use_calc_stream: bool = False
) -> Variable:
    """The sum, product, maximum or minimum of ``x`` over all devices. Raises TypeError for other reductions."""
    op_type = f"c_allreduce_{_REDUCTIONS[_index_of(reduce_type)]}"
    return _append(op_type, x, out, {"ring_id": ring_id, "use_calc_stream": use_calc_stream})


def _c_broadcast(x: Variable, root: int = 0, ring_id: int = 0, use_calc_stream: bool = False) -> Variable:
    """Replace ``x``, in place, with the value on device ``root``."""
    return _append("c_broadcast", x, x, {"root": root, "ring_id": ring_id, "use_calc_stream": use_calc_stream})


def _c_allgather(x: Variable, nranks: int, ring_id: int = 0, use_calc_stream: bool = False) -> Variable:
    """``x`` of all ``nranks`` devices, concatenated along axis 0."""
    attrs = {"nranks": nranks, "ring_id": ring_id, "use_calc_stream": use_calc_stream}
    return _append("c_allgather", x, None, attrs)


def _c_reducescatter(x: Variable, nranks: int, ring_id: int = 0, use_calc_stream: bool = False) -> Variable:
    """This device's share, along axis 0, of the sum of ``x`` over all devices.

    Raises ValueError if ``x`` cannot be divided evenly.
    """
    if not isinstance(x, Variable):
        raise TypeError(f"x of _c_reducescatter must be a Variable, received {type(x).__name__}. Pass one.")
    if x.shape[0] > 0 and x.shape[0] % nranks:
        raise ArgumentError(
            f"x.shape[0]({x.shape[0]}) cannot be evenly divided by nranks({nranks}): expected a multiple of it; pad x"
        )
    attrs = {"nranks": nranks, "ring_id": ring_id, "use_calc_stream": use_calc_stream}
    return _append("c_reducescatter", x, None, attrs)


def _c_sync_calc_stream(x: Variable) -> Variable:
    """Wait for computation; a no-op, since XLA orders operations itself."""
    return _append("c_sync_calc_stream", x, x, {})


def _c_sync_comm_stream(x: Variable, ring_id: int) -> Variable:
    """Wait for communication; a no-op, since XLA orders operations itself."""
    return _append("c_sync_comm_stream", x, x, {"ring_id": ring_id})
