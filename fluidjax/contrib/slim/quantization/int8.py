"""Storing rounded weights as int8, and converting op names for mobile."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluidjax.base.enums import VarType
from fluidjax.base.places import Place
from fluidjax.base.scope import Scope
from fluidjax.contrib.slim.quantization.freezing import check_given
from fluidjax.contrib.slim.quantization.ops import (
    FAKE_DEQUANTIZE,
    FAKE_QUANTIZE,
    WITH_WEIGHT,
    attribute,
    drop_unused,
    held,
    in_order,
    persistable_names,
)
from fluidjax.ir.ir_graph import IrGraph
from fluidjax.ir.wrapped import IrOpNode, IrVarNode


class ConvertToInt8Pass:
    """Converts the rounded weights of quantized ops to int8 variables ``<name>.int8``.

    Args:
        scope, place: hold the weights, and determine where to place them.
        quantizable_op_type: has no effect: ops record themselves that they are quantized.

    Raises AssertionError without a scope or place.
    """

    def __init__(self, scope: Scope, place: Place, quantizable_op_type: Any = None):
        check_given(scope, place)
        self._scope, self._place = scope, place

    def apply(self, graph: IrGraph) -> IrGraph:
        """Transform a frozen graph; returns it."""
        weights = persistable_names(graph)
        short: dict[str, IrVarNode] = {}
        for op in in_order(graph.all_op_nodes()):
            if attribute(op, "quantization_type") == WITH_WEIGHT:
                for var in [var for var in op.inputs if var.name() in weights]:
                    if var.name() not in short:
                        short[var.name()] = self._stored(graph, var)
                    graph.update_input_link(var, short[var.name()], op)
        drop_unused(graph)
        graph.resolve_hazard()
        return graph

    def _stored(self, graph: IrGraph, var: IrVarNode) -> IrVarNode:
        name = f"{var.name()}.int8"
        value = np.array(held(self._scope, var.name())).astype(np.int8)
        self._scope.var(name).get_tensor().set(value, self._place)
        return graph.create_persistable_node(name, var.type(), var.shape(), VarType.INT8)


class TransformForMobilePass:
    """Renames the ops that quantize and dequantize to ``quantize`` and ``dequantize``, as used by paddle-mobile."""

    def apply(self, graph: IrGraph) -> IrGraph:
        """Transform a frozen graph; returns it."""
        for op in in_order(graph.all_op_nodes()):
            if op.name() in FAKE_QUANTIZE:
                self._rename(graph, op, "quantize")
            elif op.name() in FAKE_DEQUANTIZE:
                self._rename(graph, op, "dequantize")
        graph.resolve_hazard()
        return graph

    def _rename(self, graph: IrGraph, op: IrOpNode, name: str) -> None:
        op.set_type(name)
        named = graph.create_op_node_from_desc(op._desc)
        for var in op.inputs:
            graph.link_to(var, named)
        for var in op.outputs:
            graph.link_to(named, var)
        graph.safe_remove_nodes(op)
