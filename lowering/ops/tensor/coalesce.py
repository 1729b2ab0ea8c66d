"""coalesce_tensor: several tensors in one flat buffer."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from lowering.dtypes import to_numpy
from lowering.errors import OpError
from lowering.program import VarInfo
from lowering.registry import op

# Fluid's CPU allocator hands out pages: each tensor begins on one.
_PAGE = 4096


def _infer(op_view, var_of):
    found = {}
    for source, target in zip(op_view.inputs["Input"], op_view.outputs["Output"], strict=True):
        var = var_of(source)
        if var is not None:
            found[target] = VarInfo(var.shape, op_view.attrs["dtype"], var.lod_level)
    return found | {op_view.outputs["FusedOutput"][0]: VarInfo((-1,), op_view.attrs["dtype"], 0)}


@op(out="Output* FusedOutput", diff="", lod=None, infer=_infer)
def coalesce_tensor(
    input: list,
    *,
    dtype: int,
    copy_data: bool = False,
    set_constant: bool = False,
    constant: float = 0.0,
    check_name: bool = False,
):
    """FusedOutput [K] = all of Input one after another, each aligned to 4096 bytes, with zeros between.

    Output_i = Input_i, or ``constant`` everywhere (also in FusedOutput) with ``set_constant`` and no ``copy_data``.
    In Fluid, outputs are views of the buffer; here they are values, so later writes to the buffer do not show in them.
    Raises OpError if an input is not of ``dtype``.
    """
    wanted = np.dtype(to_numpy(dtype))
    for i, value in enumerate(input):
        if value.dtype != wanted:
            raise OpError(
                f"coalesce_tensor: Input[{i}] has dtype {value.dtype}, expected {wanted} (attribute dtype = {dtype});"
                " cast it, or coalesce tensors of one dtype"
            )
    filled = set_constant and not copy_data
    if filled:
        input = [jnp.full(v.shape, constant, wanted) for v in input]
    step = _PAGE // wanted.itemsize
    fill = constant if filled else 0
    parts = [jnp.pad(v.reshape(-1), (0, -v.size % step), constant_values=fill) for v in input]
    return list(input), jnp.concatenate(parts)
