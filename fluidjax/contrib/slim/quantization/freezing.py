"""Conversion of graphs with fake quantization to integer arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluidjax import unique_name
from fluidjax.base.places import Place
from fluidjax.base.scope import Scope
from fluidjax.contrib.slim.quantization.ops import (
    CONVOLUTIONS,
    FAKE_DEQUANTIZE,
    FAKE_QUANTIZE,
    WITH_WEIGHT,
    Putting,
    attribute,
    drop_unused,
    held,
    in_order,
    persistable_names,
)
from fluidjax.ir.ir_graph import IrGraph
from fluidjax.ir.nodes import Node
from fluidjax.ir.wrapped import IrNode, IrOpNode, IrVarNode

_ENDINGS = (".quantized.dequantized", ".quantized", ".dequantized", ".scale")


class QuantizationFreezePass:
    """Rounds the weights in the scope, and moves the rescaling after each op.

    ``x -> quantize -> dequantize -> conv2d`` becomes ``x -> quantize -> conv2d -> dequantize``.

    Args:
        scope, place: hold the weights, and determine where to place them.
        weight_bits, activation_bits, weight_quantize_type: as for ``QuantizationTransformPass``.
        quantizable_op_type: has no effect: ops record themselves that they are quantized.

    Raises AssertionError without a scope or place.
    """

    def __init__(
        self,
        scope: Scope,
        place: Place,
        weight_bits: int = 8,
        activation_bits: int = 8,
        weight_quantize_type: str = "abs_max",
        quantizable_op_type: Any = None,
    ):
        check_given(scope, place)
        self._scope, self._place = scope, place
        self._weight_bits, self._activation_bits = weight_bits, activation_bits
        self._weight_quantize_type = weight_quantize_type

    def apply(self, graph: IrGraph) -> IrGraph:
        """Transform a graph and the weights in the scope; returns the graph.

        Raises ValueError for a quantized op with several outputs.
        """
        self._put = Putting(graph, self._scope, self._place, True)
        self._weights = persistable_names(graph)
        self._scales: dict[str, Any] = {}
        self._sources: dict[Node, IrVarNode] = {}
        self._results: dict[Node, IrVarNode] = {}
        self._read_scales(graph)
        for op in in_order(graph.all_op_nodes()):
            if op.name() in FAKE_DEQUANTIZE:
                self._take_out(graph, op)
        ops = in_order(graph.all_op_nodes())
        for op in ops:
            if attribute(op, "quantization_type") == WITH_WEIGHT:
                self._scale_back(graph, op)
        for op in ops:
            for var in op.inputs:
                if var.node in self._results:
                    graph.update_input_link(var, self._results[var.node], op)
        drop_unused(graph)
        graph.resolve_hazard()
        return graph

    def _read_scales(self, graph: IrGraph) -> None:
        """Round the weights and store their scales; for activations, store the variable that holds the scale."""
        told = getattr(graph, "out_node_mapping_table", {})
        for op in in_order(graph.all_op_nodes()):
            if op.name() not in FAKE_QUANTIZE:
                continue
            name = told.get(op.input("X")[0], op.input("X")[0])
            if name in self._weights:
                self._scales[name] = self._round(name, op)
                self._take_out(graph, op)
            else:
                self._scales[name] = graph._find_node_by_name(op.outputs, op.output("OutScale")[0])

    def _round(self, name: str, op: IrOpNode) -> Any:
        tensor = held(self._scope, name)
        weight = np.array(tensor)
        scale = self._weight_scale(weight, op)
        largest = (1 << (self._weight_bits - 1)) - 1
        divisor = (
            np.array(scale, weight.dtype).reshape(-1, *[1] * (weight.ndim - 1)) if isinstance(scale, list) else scale
        )
        tensor.set(np.round(weight / divisor * largest), self._place)
        return scale

    def _weight_scale(self, weight: np.ndarray, op: IrOpNode) -> Any:
        """A single scale, or a list with one per channel."""
        if self._weight_quantize_type == "channel_wise_abs_max" and weight.ndim == 4:
            return list(np.max(np.abs(weight), axis=(1, 2, 3)))
        if self._weight_quantize_type in ("abs_max", "channel_wise_abs_max"):
            return np.max(np.abs(weight))
        return np.array(held(self._scope, op.output("OutScale")[0]))[0]

    def _take_out(self, graph: IrGraph, op: IrOpNode) -> None:
        out = graph._find_node_by_name(op.outputs, op.output("Out")[0])
        source = graph._find_node_by_name(op.inputs, op.input("X")[0])
        self._sources[out.node] = self._sources.get(source.node, source)
        graph.safe_remove_nodes(op)

    def _scale_back(self, graph: IrGraph, op: IrOpNode) -> None:
        weight_scales, scale = self._rewired(graph, op)
        if len(op.output_arg_names()) != 1:
            raise ValueError(
                f"Only support one output, but op {op.name()} has more than one output: {op.output_arg_names()}. Leave"
                " it out of quantizable_op_type."
            )
        out = graph._find_node_by_name(op.outputs, op.output_arg_names()[0])
        self._results[out.node] = result = self._put.like(out, f"{out.name()}.dequantized")
        if self._weight_quantize_type == "channel_wise_abs_max" and op.name() in CONVOLUTIONS:
            channels = self._put.state(out, unique_name.generate("channel_scale"), np.array(weight_scales[-1]))
            bits = [self._weight_bits, self._activation_bits]
            inputs = {"X": out, "Scales": [channels, scale]}
            self._put.op("fake_channel_wise_dequantize_max_abs", inputs, {"Out": result}, {"quant_bits": bits})
        else:
            attrs = {"max_range": self._range(weight_scales)}
            self._put.op("fake_dequantize_max_abs", {"X": out, "Scale": scale}, {"Out": result}, attrs)

    def _rewired(self, graph: IrGraph, op: IrOpNode) -> tuple[list[Any], IrVarNode]:
        """Make an op read quantized values; returns (the weights' scales, the activation's scale)."""
        weights, scale = [], None
        for var in op.inputs:
            name = var.name()
            if name not in op.input_arg_names():
                continue
            if var.node in self._sources:
                graph.update_input_link(var, self._sources[var.node], op)
            found = self._scales[_original(name)]
            if isinstance(found, IrNode):
                scale = found
            else:
                weights.append(found)
        if scale is None:
            raise AssertionError(
                f"op {op.name()}: none of {op.input_arg_names()} is a quantized activation. Expected one. Apply"
                " QuantizationTransformPass to the graph first."
            )
        return weights, scale  # type: ignore[return-value]

    def _range(self, weight_scales: list[Any]) -> float:
        """The divisor of the result, apart from the activation's scale."""
        found = float((1 << (self._activation_bits - 1)) - 1)
        for scale in weight_scales:
            found *= ((1 << (self._weight_bits - 1)) - 1) / float(scale)
        return found


def _original(name: str) -> str:
    ending = next((ending for ending in _ENDINGS if name.endswith(ending)), "")
    return name.removesuffix(ending)


def check_given(scope: object, place: object) -> None:
    """Raise AssertionError for a missing scope or place."""
    for what, given in (("scope", scope), ("place", place)):
        if given is None:
            raise AssertionError(f"The {what} cannot be set None: expected the one that the model runs in. Pass it.")
