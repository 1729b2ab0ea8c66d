"""Weight normalisation: the ops of a parameter w = g * v / |v|."""

from __future__ import annotations

import copy
from typing import Any

from fluidjax import unique_name
from fluidjax.framework import Block, Program, Variable
from fluidjax.param_attr import ParamAttr, WeightNormParamAttr


class _Writer:
    """Writes small ops into one block, naming them after the layer."""

    def __init__(self, layer: str, block: Block) -> None:
        self.layer, self.block = layer, block

    def _name(self, kind: str) -> str:
        return unique_name.generate(f"{self.layer}.weight_norm_{kind}")

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


def normalized_parameter(
    layer: str, attr: WeightNormParamAttr, shape: Any, dtype: Any, main: Program, startup: Program
) -> Variable:
    """The variable w = g * v / |v| with parameters g and v; g is initialised to |v|, so that w starts as v.

    Args:
        layer: the layer's name, after which variables are named.
        attr: of w; those of g and v follow from it.
        shape, dtype: of w.
        main, startup: the programs to write into.
    """
    g_attr, v_attr = copy.deepcopy(attr), copy.deepcopy(attr)
    g_attr.name, v_attr.name = f"{attr.name}_g", f"{attr.name}_v"
    g_shape = [1] * len(shape)
    if attr.dim is not None:
        g_shape[attr.dim] = shape[attr.dim]
    start, outermost = startup.global_block(), main.global_block()
    start.create_parameter(dtype=dtype, shape=g_shape, **ParamAttr._to_kwargs(g_attr))
    start.create_parameter(dtype=dtype, shape=shape, **v_attr._to_kwargs(with_initializer=True))
    writer = _Writer(layer, start)
    g_start = writer.norm_except_dim(start.var(v_attr.name), attr.dim, start.var(g_attr.name))
    writer.reshape(g_start, g_shape, g_start)
    g = outermost.create_parameter(dtype=dtype, shape=g_shape, **g_attr._to_kwargs())
    v = outermost.create_parameter(dtype=dtype, shape=shape, **v_attr._to_kwargs())
    norm = _Writer(layer, outermost).norm_except_dim(v, attr.dim)
    return _scaled(main.current_block(), g, v, norm, attr.dim)


def _scaled(block: Block, g: Variable, v: Variable, norm: Variable, dim: int | None) -> Variable:
    scale = _layer(block, "elementwise_div", {"X": g, "Y": norm}, axis=-1)
    if dim is not None:
        scale = _layer(block, "reshape2", {"X": scale}, "XShape", shape=[v.shape[dim]])
    return _layer(block, "elementwise_mul", {"X": v, "Y": scale}, axis=-1 if dim is None else dim)


def _layer(block: Block, op_type: str, inputs: dict[str, Variable], *more: str, **attrs: Any) -> Variable:
    """Write an op as a layer of its own, since the names it creates are part of Fluid's programs."""
    name = unique_name.generate(op_type)
    dtype = inputs["X"].dtype
    outputs = {
        slot: block.create_var(
            name=unique_name.generate_with_ignorable_key(f"{name}.tmp"), dtype=dtype, stop_gradient=False
        )
        for slot in ("Out", *more)
    }
    block.append_op(type=op_type, inputs=inputs, outputs=outputs, attrs=attrs)
    return outputs["Out"]
