"""``fluid.net_drawer``: a network's ops and their data flow, as a graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fluidjax.framework import Program
from fluidjax.graphviz import Graph, Node

__all__ = ["draw_graph"]

OP_STYLE = {"shape": "oval", "color": "#0F9D58", "style": "filled", "fontcolor": "#FFFFFF"}
VAR_STYLE: dict[str, Any] = {}
GRAPH_STYLE = {"rankdir": "TB"}


def draw_graph(
    startup_program: Program,
    main_program: Program,
    filename: str | None = None,
    graph_attr: Mapping[str, Any] | None = None,
    node_attr: Mapping[str, Any] | None = None,
    edge_attr: Mapping[str, Any] | None = None,
) -> Graph:
    """The ops of block 0 of two programs, with an edge from each op to the ops that read its outputs.

    In Fluid 1.8.5 this function always fails, because it passes arguments that its graph does not accept.

    Args:
        startup_program, main_program: the programs; the second reads what the first writes.
        filename: where to write the graph in Graphviz's language; None: not written.
        graph_attr, node_attr, edge_attr: additional Graphviz attributes.
    """
    graph = Graph(filename or "network", **{**GRAPH_STYLE, **(graph_attr or {})})
    writers: dict[str, Node] = {}
    for program in (startup_program, main_program):
        _add(graph, program, writers, {**OP_STYLE, **(node_attr or {})}, {**VAR_STYLE, **(edge_attr or {})})
    if filename is not None:
        with open(filename, "w", encoding="utf-8") as file:
            file.write(graph.code())
    return graph


def _add(
    graph: Graph, program: Program, writers: dict[str, Node], op_style: Mapping[str, Any], style: Mapping[str, Any]
) -> None:
    for op in program.global_block().ops:
        node = graph.node(f'"{op.type}"', "op", op.type, **op_style)
        for slot in op.input_names:
            for name in op.input(slot):
                source = writers.get(name) or writers.setdefault(name, graph.node(f'"{name}"', "feed", name))
                graph.edge(source, node, **{**style, "label": f"{slot}({name})"})
        writers.update(dict.fromkeys(op.output_arg_names, node))
