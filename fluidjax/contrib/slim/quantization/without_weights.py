"""Fake quantization of the inputs of ops without weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidjax.base.places import Place
from fluidjax.base.scope import Scope
from fluidjax.contrib.slim.quantization.freezing import check_given
from fluidjax.contrib.slim.quantization.ops import (
    WITH_WEIGHT,
    WITHOUT_WEIGHT,
    Putting,
    attribute,
    check_graph,
    in_order,
    only_activations,
    read_by,
    skipped,
)
from fluidjax.contrib.slim.quantization.transform import check_supported
from fluidjax.ir.ir_graph import IrGraph
from fluidjax.ir.wrapped import IrOpNode, IrVarNode


class AddQuantDequantPass:
    """Rounds and rescales the inputs of each op that reads only activations, with one op per input.

    Args:
        scope, place: where to store the state of the inserted ops.
        moving_rate: decay rate of the average of scales.
        quant_bits: bit width, including the sign.
        skip_pattern: one or more strings: ops whose name scope contains one are left unchanged.
        quantizable_op_type: a subset of the supported ops.
        is_full_quantized: quantize all supported ops.

    Raises AssertionError without a scope or place, or for an unsupported op.
    """

    _supported_quantizable_op_type = (
        "pool2d elementwise_add concat softmax argmax transpose equal gather greater_equal greater_than less_equal"
        " less_than mean not_equal reshape reshape2 bilinear_interp nearest_interp trilinear_interp slice squeeze"
        " elementwise_sub mul matmul relu relu6 leaky_relu tanh swish"
    ).split()
    _activation_type = ["relu", "relu6", "leaky_relu", "tanh", "swish"]

    def __init__(
        self,
        scope: Scope | None = None,
        place: Place | None = None,
        moving_rate: float = 0.9,
        quant_bits: int = 8,
        skip_pattern: Any = ["skip_quant"],  # noqa: B006  (Fluid's default, never changed)
        quantizable_op_type: Sequence[str] = ["elementwise_add", "pool2d"],  # noqa: B006
        is_full_quantized: bool = False,
    ):
        if not is_full_quantized:
            check_supported(quantizable_op_type, self._supported_quantizable_op_type)
        check_given(scope, place)
        self._scope, self._place = scope, place
        self._moving_rate, self._quant_bits, self._skip_pattern = moving_rate, quant_bits, skip_pattern
        self._types = list(self._supported_quantizable_op_type if is_full_quantized else quantizable_op_type)

    def apply(self, graph: IrGraph) -> IrGraph:
        """Transform a graph; returns it."""
        check_graph(graph)
        put = Putting(graph, self._scope, self._place, graph.is_test())
        rounded: dict[str, IrVarNode] = {}
        ops = in_order(graph.all_op_nodes())
        for op in [op for op in ops if op.name() in self._types and self._counts(graph, op)]:
            op.set_attr("quantization_type", WITHOUT_WEIGHT)
            op.set_attr("activation_bits", self._quant_bits)
            for name in read_by(op):
                var = graph._find_node_by_name(op.inputs, name)
                if name not in rounded:
                    rounded[name] = self._round(put, var)
                graph.update_input_link(var, rounded[name], op)
        for op in [op for op in ops if op.name().removesuffix("_grad") in self._types and op.name() not in self._types]:
            for name in [name for name in op.input_arg_names() if name in rounded]:
                graph.update_input_link(graph._find_node_by_name(op.inputs, name), rounded[name], op)
        graph.resolve_hazard()
        return graph

    def _counts(self, graph: IrGraph, op: IrOpNode) -> bool:
        taken = attribute(op, "quantization_type") == WITH_WEIGHT
        return not skipped(op, self._skip_pattern) and not taken and only_activations(graph, op)

    def _round(self, put: Putting, var: IrVarNode) -> IrVarNode:
        out = put.like(var, f"{var.name()}.quant_dequant")
        scale = put.state(var, f"{var.name()}.quant_dequant.scale", [0.001])
        before, after = put.averaging(var, ("quant_dequant.state", "quant_dequant.accum"))
        put.op(
            "fake_quantize_dequantize_moving_average_abs_max",
            {"X": var, "InScale": scale, **before},
            {"Out": out, "OutScale": put.next(scale), **after},
            {"bit_length": self._quant_bits, "moving_rate": self._moving_rate, "is_test": put.testing},
        )
        return out
