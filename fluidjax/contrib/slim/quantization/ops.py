"""The quantized ops and their relevant inputs, and insertion of ops and their state into a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fluidjax import unique_name
from fluidjax.base.enums import OpRole, VarType
from fluidjax.base.places import Place
from fluidjax.base.scope import Scope
from fluidjax.base.values import LoDTensor
from fluidjax.framework import Operator
from fluidjax.ir.ir_graph import IrGraph
from fluidjax.ir.wrapped import IrNode, IrOpNode, IrVarNode

FAKE_QUANTIZE = [
    "fake_quantize_abs_max",
    "fake_quantize_range_abs_max",
    "fake_quantize_moving_average_abs_max",
    "fake_channel_wise_quantize_abs_max",
]
FAKE_DEQUANTIZE = ["fake_dequantize_max_abs", "fake_channel_wise_dequantize_max_abs"]
CONVOLUTIONS = ("conv2d", "depthwise_conv2d")
WITH_WEIGHT, WITHOUT_WEIGHT = "qat_with_weight", "qat_without_weight"

# Ops whose outputs' scales are kept for other engines.
SCALED = (
    "conv2d depthwise_conv2d mul matmul relu leaky_relu relu6 sigmoid tanh prelu swish softmax batch_norm"
    " elementwise_add pool2d reshape2 transpose2 concat elementwise_mul scale"
).split()

_TWO = "mul matmul elementwise_add equal greater_equal greater_than less_equal less_than not_equal elementwise_sub"
_ONE = (
    "pool2d concat softmax argmax transpose gather mean reshape reshape2 transpose2 bilinear_interp nearest_interp"
    " trilinear_interp squeeze relu relu6 leaky_relu prelu tanh swish dropout sigmoid scale"
)
# The slots that hold values: what says a shape, an axis or a statistic is not quantized.
REAL_SLOTS: dict[str, list[list[str]]] = {
    **dict.fromkeys(CONVOLUTIONS, [["Input", "Filter"], ["Output"]]),
    **dict.fromkeys([*_TWO.split(), "elementwise_mul"], [["X", "Y"], ["Out"]]),
    **dict.fromkeys(_ONE.split(), [["X"], ["Out"]]),
    "slice": [["Input"], ["Out"]],
    "batch_norm": [["X"], ["Y"]],
}


def read_by(op: Any) -> list[str]:
    """The variables whose values an op reads; the op is an IrNode or Operator."""
    return [name for slot in _slots(op)[0] for name in op.input(slot)]


def written_by(op: Any) -> list[str]:
    """The variables whose values an op writes; the op is an IrNode or Operator."""
    return [name for slot in _slots(op)[1] for name in op.output(slot)]


def _slots(op: Any) -> list[list[str]]:
    if not isinstance(op, (IrNode, Operator)):
        raise AssertionError(
            f"The input op should be IrNode or Operator: received {type(op).__name__}. Take one of a graph or block."
        )
    return REAL_SLOTS[op.name() if isinstance(op, IrNode) else op.type]


def only_activations(graph: IrGraph, op: IrOpNode) -> bool:
    """Whether an op reads no persistable variable."""
    return not any(graph._find_node_by_name(op.inputs, name).persistable() for name in read_by(op))


def attribute(op: IrOpNode, name: str) -> Any:
    """An attribute of a node; None if missing."""
    desc = op._desc
    return desc.attr(name) if desc.has_attr(name) else None


def skipped(op: IrOpNode, pattern: Any) -> bool:
    """Whether the name scope of an op contains a pattern, or any of several."""
    scope = attribute(op, "op_namescope")
    patterns = [pattern] if isinstance(pattern, str) else pattern if isinstance(pattern, list) else []
    return scope is not None and any(one in scope for one in patterns)


def in_order(nodes: Any) -> list[Any]:
    """Nodes in order of creation: ops in program order, then those inserted."""
    return sorted(nodes, key=IrNode.id)


def initialize(node: IrVarNode, value: np.ndarray, scope: Scope | None, place: Place | None) -> None:
    """Set the value of a variable in a scope. Raises AssertionError without a scope or place."""
    if not isinstance(value, np.ndarray) or scope is None or place is None:
        raise AssertionError(
            f"{node.name()} needs a value: expected a NumPy array, a scope and a place, received"
            f" {type(value).__name__}, {scope} and {place}. Give the pass its scope and place."
        )
    scope.var(node.name()).get_tensor().set(value, place)


def held(scope: Scope | None, name: str) -> LoDTensor:
    """The tensor of a variable in a scope. Raises AssertionError if there is none."""
    var = scope.find_var(name) if scope is not None else None
    if var is None:
        raise AssertionError(
            f"Cannot find {name} in the scope. Expected the scope that the model was loaded or trained in. Pass it."
        )
    return var.get_tensor()


def float_type(node: IrVarNode) -> str:
    """The dtype of a variable's scales: float64 for float64, else float32."""
    return "float64" if node.dtype() == VarType.FP64 else "float32"


class Putting:
    """Inserts ops and their state into a graph.

    Args:
        graph, scope, place: where to insert ops, and where to store the values of their state.
        testing: whether state is read-only.
    """

    def __init__(self, graph: IrGraph, scope: Scope | None, place: Place | None, testing: bool):
        self.graph, self.scope, self.place, self.testing = graph, scope, place, testing

    def op(
        self, type: str, inputs: Mapping[str, Any], outputs: Mapping[str, Any], attrs: Mapping[str, Any]
    ) -> IrOpNode:
        """A new forward op, linked to its variables."""
        op = self.graph.create_op_node(type, {**attrs, "op_role": int(OpRole.Forward)}, inputs, outputs)
        for var in _flat(inputs):
            self.graph.link_to(var, op)
        for var in _flat(outputs):
            self.graph.link_to(op, var)
        return op

    def like(self, node: IrVarNode, name: str, shape: Sequence[int] | None = None) -> IrVarNode:
        """A new variable of the same kind as another and, unless a shape is given, of its shape."""
        dims = node.shape() if shape is None else shape
        return self.graph.create_var_node(name, node.type(), dims, node.dtype())

    def state(self, node: IrVarNode, name: str, value: Any) -> IrVarNode:
        """A new persistable variable with a value, of the same dtype as another."""
        array = np.asarray(value, float_type(node))
        made = self.graph.create_persistable_node(name, VarType.LOD_TENSOR, list(array.shape), node.dtype())
        initialize(made, array, self.scope, self.place)
        return made

    def next(self, node: IrVarNode) -> IrVarNode:
        """A new version of a variable."""
        return self.graph.create_var_node_from_desc(node._desc)

    def averaging(self, node: IrVarNode, prefixes: tuple[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
        """(inputs, outputs) of an op that averages over steps, with their count and sum; empty when testing."""
        if self.testing:
            return {}, {}
        state = self.state(node, unique_name.generate(prefixes[0]), [1])
        accum = self.state(node, unique_name.generate(prefixes[1]), [1])
        outputs = {"OutState": self.next(state), "OutAccum": self.next(accum)}
        return {"InState": state, "InAccum": accum}, outputs


def drop_unused(graph: IrGraph) -> None:
    """Remove variables that no op reads or writes."""
    used = {var.node for op in graph.all_op_nodes() for var in (*op.inputs, *op.outputs)}
    graph.safe_remove_nodes([var for var in graph.all_var_nodes() if var.node not in used])


def persistable_names(graph: IrGraph) -> set[str]:
    """The names of the persistable variables."""
    return {node.name() for node in graph.all_persistable_nodes()}


def _flat(slots: Mapping[str, Any]) -> list[IrVarNode]:
    return [var for vars in slots.values() for var in (vars if isinstance(vars, list) else [vars])]


def check_graph(graph: object) -> None:
    """Raise AssertionError unless given an IrGraph."""
    if not isinstance(graph, IrGraph):
        raise AssertionError(
            f"graph must be the instance of IrGraph: received {type(graph).__name__}. Write"
            " IrGraph(core.Graph(program.desc))."
        )
