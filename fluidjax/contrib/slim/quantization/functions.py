"""User-defined layers between a variable and the op that reads it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fluidjax import unique_name
from fluidjax.base.scope import Scope, scope_guard
from fluidjax.contrib.slim.quantization.ops import in_order
from fluidjax.data import data
from fluidjax.framework import Program, program_guard
from fluidjax.ir.graph import Graph
from fluidjax.ir.ir_graph import IrGraph
from fluidjax.ir.wrapped import IrOpNode, IrVarNode
from fluidjax.layers import mean


def insert_function(
    graph: IrGraph,
    function: Callable[..., Any],
    var: IrVarNode,
    op: IrOpNode,
    optimizer: Callable[[], Any] | None,
    executor: Any,
    scope: Scope | None,
) -> IrVarNode:
    """Insert a function between a variable and an op that reads it.

    Args:
        graph: modified in place; in a training graph, the gradients are inserted too.
        function: takes a Variable and returns one of the same shape, using layers.
        var, op: the variable and the op.
        optimizer: a function that creates an Optimizer; required in a training graph.
        executor, scope: initialise the parameters of the layers.

    Returns:
        The result of the function, as a node.
    """
    program, names, startup = _written(function, var, graph, optimizer)
    with scope_guard(scope if scope is not None else Scope()):
        executor.run(startup)
    graph.graph._take(Graph(program.desc))
    given, result, loss = (_node(graph, name) for name in names)
    for reader in given.outputs:
        graph.update_input_link(given, var, reader)
    graph.update_input_link(var, result, op)
    if not graph.is_test():
        _link_gradients(graph, var, op, given, result)
    graph.safe_remove_nodes([loss.inputs[0], loss, given])
    return result


def _written(
    function: Callable[..., Any], var: IrVarNode, graph: IrGraph, optimizer: Callable[[], Any] | None
) -> tuple[Program, tuple[str, str, str], Program]:
    main, startup = Program(), Program()
    with program_guard(main, startup), unique_name.guard(f"{var.name()}_"):
        given = data(f"{var.name()}_tmp_input", shape=var.shape(), dtype="float32")
        result = function(given)
        graph.out_node_mapping_table[result.name] = var.name()  # type: ignore[attr-defined]
        loss = mean(result)
        if not graph.is_test():
            if optimizer is None:
                raise AssertionError(
                    "optimizer_func must be set when the graph is trained: received None. Pass a function that makes"
                    " an Optimizer."
                )
            given.stop_gradient = False
            optimizer().minimize(loss)
    return main, (given.name, result.name, loss.name), startup


def _node(graph: IrGraph, name: str) -> IrVarNode:
    return graph._find_node_by_name(in_order(graph.all_var_nodes()), name)


def _link_gradients(graph: IrGraph, var: IrVarNode, op: IrOpNode, given: IrVarNode, result: IrVarNode) -> None:
    """Connect the gradient of the op to the function's backward pass, replacing that of the mean."""
    op_grad = _node(graph, op.outputs[0].name() + "@GRAD").outputs[0]
    result_grad, given_grad = _node(graph, result.name() + "@GRAD"), _node(graph, given.name() + "@GRAD")
    writers = given_grad.inputs
    graph.update_input_link(var, result, op_grad)
    old = [node for node in op_grad.outputs if f"{var.name()}@GRAD" in node.name()]
    mean_grad = result_grad.inputs[0]
    loss_grad = mean_grad.inputs[0]
    if old:
        graph.update_output_link(old[-1], result_grad, op_grad)
    else:  # nobody wanted that gradient, but what the function learns does
        slot = next(slot for slot, names in op._desc.inputs().items() if result.name() in names)
        op_grad._desc.set_output(f"{slot}@GRAD", [result_grad.name()])
        graph.link_to(op_grad, result_grad)
    for writer in writers:
        graph.update_input_link(given, var, writer)
        if old:
            graph.update_output_link(given_grad, old[-1], writer)
    useless = [mean_grad, loss_grad, loss_grad.inputs[0], *([given_grad] if old else [])]
    graph.safe_remove_nodes(useless)
