"""Output ranges of ops, for engines that compute entirely with integers."""

from __future__ import annotations

import numpy as np

from fluidjax.base.places import Place
from fluidjax.base.scope import Scope
from fluidjax.contrib.slim.quantization.ops import SCALED, Putting, check_graph, held, in_order, written_by
from fluidjax.ir.ir_graph import IrGraph
from fluidjax.ir.wrapped import IrVarNode


class OutScaleForTrainingPass:
    """Adds, after each relevant op, a moving average of its output's largest magnitude, ``<output>@scale``.

    Args:
        scope, place: where to store the state.
        moving_rate: decay rate of the average.
    """

    def __init__(self, scope: Scope | None = None, place: Place | None = None, moving_rate: float = 0.9):
        self._scope, self._place, self._moving_rate = scope, place, moving_rate

    def apply(self, graph: IrGraph) -> IrGraph:
        """Transform a graph; returns it."""
        check_graph(graph)
        put = Putting(graph, self._scope, self._place, graph.is_test())
        for op in [op for op in in_order(graph.all_op_nodes()) if op.name() in SCALED]:
            for name in written_by(op):
                self._watch(put, graph._find_node_by_name(op.outputs, name))
        graph.resolve_hazard()
        return graph

    def _watch(self, put: Putting, var: IrVarNode) -> None:
        outputs = {"Out": put.next(var), "OutScale": put.state(var, f"{var.name()}@scale", [1])}
        before, after = put.averaging(var, ("scale_state@", "scale_accum@"))
        attrs = {"moving_rate": self._moving_rate, "is_test": put.testing}
        put.op("moving_average_abs_max_scale", {"X": var, **before}, {**outputs, **after}, attrs)


class OutScaleForInferencePass:
    """Stores the averages computed by ``OutScaleForTrainingPass`` in the attribute ``out_threshold`` of each op.

    Args:
        scope: holds the averages.
    """

    def __init__(self, scope: Scope | None = None):
        self._scope = scope

    def apply(self, graph: IrGraph) -> IrGraph:
        """Transform a graph; returns it. Raises AssertionError if the scope lacks the average of an output."""
        check_graph(graph)
        for op in [op for op in in_order(graph.all_op_nodes()) if op.name() in SCALED]:
            (name,) = written_by(op)
            op.set_attr("out_threshold", float(np.array(held(self._scope, f"{name}@scale"))[0]))
        graph.resolve_hazard()
        return graph
