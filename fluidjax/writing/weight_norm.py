"""Weight normalisation: the ops of a parameter w = g * v / |v|."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from fluidjax import unique_name
from fluidjax.framework import Block, Variable
from fluidjax.param_attr import ParamAttr, WeightNormParamAttr

if TYPE_CHECKING:
    from fluidjax.layer_helper_base import LayerHelperBase


class _Writer:
    """Writes small ops into one block, naming them after the layer."""

    def __init__(self, helper: LayerHelperBase, block: Block) -> None:
        self.helper, self.block = helper, block

    def _name(self, kind: str) -> str:
        return unique_name.generate(".".join([self.helper.name, f"weight_norm_{kind}"]))

    def _result(self, kind: str, dtype: Any) -> Variable:
        return self.block.create_var(name=self._name(kind), dtype=dtype, persistable=False)

    def _op(self, op_type: str, x: Variable, out: Variable, **attrs: Any) -> Variable:
        self.block.append_op(type=op_type, inputs={"X": x}, outputs={"Out": out}, attrs=attrs)
        return out

    def reshape(self, x: Variable, shape: list[int], out: Variable | None = None) -> Variable:
        return self._op("reshape", x, self._result("reshape", x.dtype) if out is None else out, shape=shape)

    def transpose(self, x: Variable, axis: list[int]) -> Variable:
        return self._op("transpose", x, self._result("transpose", x.dtype), axis=axis)

    def norm_over_rows(self, x: Variable, dim: list[int] | None, out: Variable | None) -> Variable:
        """sqrt(sum |x|^2) over `dim`, or over everything."""
        magnitude = self._op("abs", x, self._result("abs", x.dtype))
        square = self._op("pow", magnitude, self._result("pow", x.dtype), factor=2.0)
        over = {"reduce_all": True} if dim is None else {"dim": dim, "keep_dim": False}
        total = self._op("reduce_sum", square, self._result("sum", x.dtype), **over)
        return self._op("pow", total, self._result("norm", x.dtype) if out is None else out, factor=0.5)

    def norm_except_dim(self, x: Variable, dim: int | None, out: Variable | None = None) -> Variable:
        """The norm of each slice along `dim`, shaped to broadcast against x; over everything if None."""
        if dim is None:
            return self.norm_over_rows(x, None, out)
        out = self._result("norm", x.dtype) if out is None else out
        rank = len(x.shape)
        shape = [size if axis == dim else 1 for axis, size in enumerate(x.shape)]
        if dim == 0:
            flat = self.reshape(x, [x.shape[0], -1])
            return self.reshape(self.norm_over_rows(flat, [1], None), shape, out)
        if dim == rank - 1:
            flat = self.reshape(x, [-1, x.shape[dim]])
            return self.reshape(self.norm_over_rows(flat, [0], None), shape, out)
        perm = list(range(rank))
        perm[0], perm[dim] = dim, 0
        swapped = self.transpose(x, perm)
        flat = self.reshape(swapped, [swapped.shape[0], -1])
        norm = self.reshape(self.norm_over_rows(flat, [1], None), [x.shape[dim]] + [1] * (rank - 1))
        return self._op("transpose", norm, out, axis=perm)


def normalized_parameter(helper: LayerHelperBase, attr: WeightNormParamAttr, shape: Any, dtype: Any) -> Variable:
    """The variable w = g * v / |v| with parameters g and v; g is initialised to |v|, so that w starts as v."""
    g_attr, v_attr = copy.deepcopy(attr), copy.deepcopy(attr)
    g_attr.name, v_attr.name = f"{attr.name}_g", f"{attr.name}_v"
    g_shape = [1] * len(shape)
    if attr.dim is not None:
        g_shape[attr.dim] = shape[attr.dim]
    startup, main = helper.startup_program.global_block(), helper.main_program.global_block()
    startup.create_parameter(dtype=dtype, shape=g_shape, **ParamAttr._to_kwargs(g_attr))
    startup.create_parameter(dtype=dtype, shape=shape, **v_attr._to_kwargs(with_initializer=True))
    writer = _Writer(helper, startup)
    g_start = writer.norm_except_dim(startup.var(v_attr.name), attr.dim, startup.var(g_attr.name))
    writer.reshape(g_start, g_shape, g_start)
    g = main.create_parameter(dtype=dtype, shape=g_shape, **g_attr._to_kwargs())
    v = main.create_parameter(dtype=dtype, shape=shape, **v_attr._to_kwargs())
    return _scaled(helper, g, v, attr.dim)


def _scaled(helper: LayerHelperBase, g: Variable, v: Variable, dim: int | None) -> Variable:
    norm = _Writer(helper, helper.main_program.global_block()).norm_except_dim(v, dim)
    scale = _layer(helper, "elementwise_div", {"X": g, "Y": norm}, axis=-1)
    if dim is not None:
        scale = _layer(helper, "reshape2", {"X": scale}, "XShape", shape=[v.shape[dim]])
    return _layer(helper, "elementwise_mul", {"X": v, "Y": scale}, axis=-1 if dim is None else dim)


def _layer(helper: LayerHelperBase, op_type: str, inputs: dict[str, Variable], *more: str, **attrs: Any) -> Variable:
    """Write an op as a layer of its own, since the names it creates are part of Fluid's programs."""
    name = unique_name.generate(op_type)
    block = helper.main_program.current_block()
    dtype = inputs["X"].dtype
    outputs = {
        slot: block.create_var(
            name=unique_name.generate_with_ignorable_key(f"{name}.tmp"), dtype=dtype, stop_gradient=False
        )
        for slot in ("Out", *more)
    }
    block.append_op(type=op_type, inputs=inputs, outputs=outputs, attrs=attrs)
    return outputs["Out"]
