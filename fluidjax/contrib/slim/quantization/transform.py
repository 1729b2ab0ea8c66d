"""Fake quantization of the inputs of ops with weights, in training or test graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fluidjax import unique_name
from fluidjax.base.enums import OpRole, VarType
from fluidjax.base.errors import explain
from fluidjax.base.places import Place
from fluidjax.base.scope import Scope
from fluidjax.contrib.slim.quantization.functions import insert_function
from fluidjax.contrib.slim.quantization.ops import (
    CONVOLUTIONS,
    WITH_WEIGHT,
    WITHOUT_WEIGHT,
    Putting,
    attribute,
    check_graph,
    in_order,
    initialize,
    only_activations,
    persistable_names,
    skipped,
)
from fluidjax.ir.ir_graph import IrGraph
from fluidjax.ir.wrapped import IrOpNode, IrVarNode

_KINDS = ("abs_max", "channel_wise_abs_max", "range_abs_max", "moving_average_abs_max")
_COUNTER = "@STEP_COUNTER@"


class QuantizationTransformPass:
    """Rounds the inputs of each op with weights to few bits and rescales them, so that training adapts to the
    rounding.

    Args:
        scope, place: where to store the state of the inserted ops.
        weight_bits, activation_bits: bit widths, including the sign.
        activation_quantize_type: "abs_max" (the largest magnitude in each batch), "range_abs_max" (in the last
            ``window_size`` batches) or "moving_average_abs_max" (a moving average with ``moving_rate``).
        weight_quantize_type: these, or "channel_wise_abs_max" for the filters of convolutions.
        window_size, moving_rate: see above.
        skip_pattern: one or more strings: ops whose name scope contains one are left unchanged.
        quantizable_op_type: a subset of conv2d, depthwise_conv2d, mul and matmul.
        weight_quantize_func, act_quantize_func: layers that quantize and dequantize, replacing the ops.
        weight_preprocess_func, act_preprocess_func: layers applied before rounding.
        optimizer_func, executor: create and initialise the trainable state of such layers; required for them.

    Raises ValueError for an unknown type, AssertionError for an unsupported op.
    """

    _supported_quantizable_op_type = ["conv2d", "depthwise_conv2d", "mul", "matmul"]

    def __init__(
        self,
        scope: Scope | None = None,
        place: Place | None = None,
        weight_bits: int = 8,
        activation_bits: int = 8,
        activation_quantize_type: str = "abs_max",
        weight_quantize_type: str = "abs_max",
        window_size: int = 10000,
        moving_rate: float = 0.9,
        skip_pattern: Any = ["skip_quant"],  # noqa: B006  (Fluid's default, never changed)
        quantizable_op_type: Sequence[str] = ["conv2d", "depthwise_conv2d", "mul"],  # noqa: B006
        weight_quantize_func: Callable[..., Any] | None = None,
        act_quantize_func: Callable[..., Any] | None = None,
        weight_preprocess_func: Callable[..., Any] | None = None,
        act_preprocess_func: Callable[..., Any] | None = None,
        optimizer_func: Callable[[], Any] | None = None,
        executor: Any = None,
    ):
        if activation_quantize_type == "channel_wise_abs_max":
            raise AssertionError(
                "The activation quantization type does not support 'channel_wise_abs_max'. Take 'abs_max',"
                " 'range_abs_max' or 'moving_average_abs_max'."
            )
        _check_kind("activation_quantize_type", activation_quantize_type)
        _check_kind("weight_quantize_type", weight_quantize_type)
        check_supported(quantizable_op_type, self._supported_quantizable_op_type)
        self._scope, self._place = scope, place
        self._weight_bits, self._activation_bits = weight_bits, activation_bits
        self._activation_quantize_type, self._weight_quantize_type = activation_quantize_type, weight_quantize_type
        self._window_size, self._moving_rate = window_size, moving_rate
        self._skip_pattern, self._quantizable_ops = skip_pattern, list(quantizable_op_type)
        self._quantize = {True: weight_quantize_func, False: act_quantize_func}
        self._preprocess = {True: weight_preprocess_func, False: act_preprocess_func}
        self._optimizer, self._exe = optimizer_func, executor

    def apply(self, graph: IrGraph) -> IrGraph:
        """Transform a graph; returns it."""
        check_graph(graph)
        self._is_test = graph.is_test()
        self._put = Putting(graph, self._scope, self._place, self._is_test)
        self._weights = persistable_names(graph)
        self._rounded: dict[str, IrVarNode] = {}
        self._by_function: set[str] = set()
        # What functions give -> what they were given: the freezing pass looks weights up by it.
        graph.out_node_mapping_table = {}  # type: ignore[attr-defined]
        self._step = None if self._is_test else self._counted(graph)
        ops = in_order(graph.all_op_nodes())
        grads = [f"{name}_grad" for name in self._quantizable_ops]
        for op in ops:
            if op.name() in (*self._quantizable_ops, *grads) and skipped(op, self._skip_pattern):
                op.set_attr("skip_quant", True)
        for op in ops:
            if op.name() in self._quantizable_ops and not self._is_skip_quant(graph, op):
                self._forward(graph, op)
        for op in ops:
            if op.name() in grads:
                self._backward(graph, op)
        graph.resolve_hazard()
        return graph

    def _is_skip_quant(self, graph: IrGraph, op: IrOpNode) -> bool:
        """Whether to skip an op; products of two activations are left to ``AddQuantDequantPass``."""
        product = op.name() in ("mul", "matmul") and only_activations(graph, op)
        return bool(attribute(op, "skip_quant")) or product or attribute(op, "quantization_type") == WITHOUT_WEIGHT

    def _forward(self, graph: IrGraph, op: IrOpNode) -> None:
        op.set_attr("quantization_type", WITH_WEIGHT)
        for var in [var for var in op.inputs if var.name() in op.input_arg_names()]:
            name = var.name()
            if name in self._by_function:
                continue
            source = var
            if name not in self._rounded:
                weight = name in self._weights
                if (function := self._preprocess[weight]) is not None:
                    source = self._insert(graph, function, var, op)
                if (function := self._quantize[weight]) is not None:
                    self._insert(graph, function, source, op)
                    self._by_function.add(name)
                    continue
                self._rounded[name] = self._round(source, name, op, weight)
            graph.update_input_link(source, self._rounded[name], op)

    def _insert(self, graph: IrGraph, function: Callable[..., Any], var: IrVarNode, op: IrOpNode) -> IrVarNode:
        return insert_function(graph, function, var, op, self._optimizer, self._exe, self._scope)

    def _backward(self, graph: IrGraph, op: IrOpNode) -> None:
        for var in op.inputs:
            if var.name() in op.input_arg_names() and var.name() in self._rounded:
                graph.update_input_link(var, self._rounded[var.name()], op)

    # Rounding one variable.

    def _round(self, var: IrVarNode, name: str, op: IrOpNode, weight: bool) -> IrVarNode:
        bits = self._weight_bits if var.name() in self._weights else self._activation_bits
        kind = self._weight_quantize_type if weight else self._activation_quantize_type
        attrs: dict[str, Any]
        if kind == "channel_wise_abs_max" and op.name() in CONVOLUTIONS:
            rounded, scale = self._abs_max(var, name, bits, "fake_channel_wise_quantize_abs_max", var.shape()[:1])
            back, attrs = "fake_channel_wise_dequantize_max_abs", {"quant_bits": [bits]}
            inputs: dict[str, Any] = {"X": rounded, "Scales": [scale]}
        else:
            rounded, scale = self._quantized(kind, var, name, bits)
            back, attrs = "fake_dequantize_max_abs", {"max_range": float((1 << (bits - 1)) - 1)}
            inputs = {"X": rounded, "Scale": scale}
        out = self._put.like(rounded, f"{rounded.name()}.dequantized")
        self._put.op(back, inputs, {"Out": out}, attrs)
        return out

    def _quantized(self, kind: str, var: IrVarNode, name: str, bits: int) -> tuple[IrVarNode, IrVarNode]:
        if kind == "range_abs_max":
            return self._range(var, name, bits)
        if kind == "moving_average_abs_max":
            return self._moving_average(var, name, bits)
        return self._abs_max(var, name, bits, "fake_quantize_abs_max", [1])

    def _abs_max(
        self, var: IrVarNode, name: str, bits: int, op_type: str, shape: Sequence[int]
    ) -> tuple[IrVarNode, IrVarNode]:
        rounded, scale = self._put.like(var, f"{name}.quantized"), self._put.like(var, f"{name}.scale", shape)
        self._put.op(op_type, {"X": var}, {"Out": rounded, "OutScale": scale}, {"bit_length": bits})
        return rounded, scale

    def _range(self, var: IrVarNode, name: str, bits: int) -> tuple[IrVarNode, IrVarNode]:
        rounded, scale = self._put.like(var, f"{name}.quantized"), self._put.state(var, f"{name}.scale", [0.001])
        inputs: dict[str, Any] = {"X": var, "InScale": scale}
        outputs = {"Out": rounded, "OutScale": self._put.next(scale)}
        if not self._is_test:
            inputs["Iter"] = self._step
            outputs["OutScales"] = self._put.state(var, unique_name.generate("scales"), np.zeros(self._window_size))
        attrs = {"window_size": self._window_size, "bit_length": bits, "is_test": self._is_test}
        self._put.op("fake_quantize_range_abs_max", inputs, outputs, attrs)
        return rounded, outputs["OutScale"]

    def _moving_average(self, var: IrVarNode, name: str, bits: int) -> tuple[IrVarNode, IrVarNode]:
        rounded, scale = self._put.like(var, f"{name}.quantized"), self._put.state(var, f"{name}.scale", [0.001])
        before, after = self._put.averaging(var, ("state", "accum"))
        new_scale = self._put.next(scale)
        self._put.op(
            "fake_quantize_moving_average_abs_max",
            {"X": var, "InScale": scale, **before},
            {"Out": rounded, "OutScale": new_scale, **after},
            {"bit_length": bits, "moving_rate": self._moving_rate, "is_test": self._is_test},
        )
        return rounded, new_scale

    def _counted(self, graph: IrGraph) -> IrVarNode | None:
        """The step counter used by the ranges, incremented here unless something else does."""
        if "range_abs_max" not in (self._weight_quantize_type, self._activation_quantize_type):
            return None
        if known := [node for node in in_order(graph.all_var_nodes()) if node.name() == _COUNTER]:
            return known[-1]
        before = graph.create_persistable_node(_COUNTER, VarType.LOD_TENSOR, [1], VarType.INT64)
        initialize(before, np.zeros([1], "int64"), self._scope, self._place)
        after = self._put.next(before)
        self._put.op("increment", {"X": before}, {"Out": after}, {"step": 1.0, "op_role": int(OpRole.Forward)})
        return after


def _check_kind(argument: str, kind: str) -> None:
    if kind not in _KINDS:
        raise ValueError(
            explain(
                f"Unknown {argument} : '{kind}'",
                "'abs_max', 'range_abs_max' or 'moving_average_abs_max', and for weights 'channel_wise_abs_max'",
                repr(kind),
                "take one of these",
            )
        )


def check_supported(types: Sequence[str], supported: Sequence[str]) -> None:
    """Raise AssertionError for an op type that is not supported."""
    for name in types:
        if name not in supported:
            raise AssertionError(
                f"{name} is not supported for quantization. Expected some of {', '.join(supported)}. Leave it out."
            )
