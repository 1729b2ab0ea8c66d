"""The effect of ``core.get_pass(name).apply(graph)`` on a graph."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from html import escape

from fluidjax import passes
from fluidjax.base.scope import Scope
from fluidjax.ir.graph import Graph
from fluidjax.ir.nodes import Node
from fluidjax.ir.pipeline import PASSES
from fluidjax.ir.rewriter import Rewriter

# Attributes of a graph: the nodes highlighted in a drawing, and the scope with its parameters.
MARKED, PARAM_SCOPE = "__graphviz__marked_node__", "__param_scope__"


def _to_program(one: passes.Pass, graph: Graph) -> None:
    graph._write(one.required("program"))


def _draw(one: passes.Pass, graph: Graph) -> None:
    """A drawing in Graphviz's DOT language: ops as boxes, variables as ellipses, marked nodes filled."""
    marked = graph.get_marked_nodes(MARKED) if graph.has(MARKED) else set()
    if graph.has(MARKED):
        graph.erase(MARKED)
    lines = ["digraph G {", 'rankdir="TB";']
    for node in graph._in_order():
        shape = "box" if node.is_op() else "ellipse"
        filled = ',style=filled,fillcolor="#f9d976"' if node in marked else ""
        lines.append(f"n{node.id()} [label=<{escape(node.name())}>,shape={shape}{filled}];")
    lines += [f"n{node.id()} -> n{after.id()};" for node in graph._in_order() for after in node.outputs]
    with open(one.required("graph_viz_path"), "w", encoding="utf-8") as file:
        file.write("\n".join([*lines, "}"]) + "\n")


def _rewrite(name: str, one: passes.Pass, graph: Graph) -> None:
    """Turn the graph into a program, run a pass of this package over it, and turn it back.

    Variables without readers count as fetched, as do those read by fetch ops. Parameters are taken from the scope that
    was set as ``__param_scope__``; without it their values are unknown.
    """
    program = graph._as_program()
    scope = graph.get_string(PARAM_SCOPE) if graph.has(PARAM_SCOPE) else Scope()
    rewriter = Rewriter(program, scope, program.desc.get_feed_target_names(), _ends(graph))
    PASSES[name](rewriter)
    _become(graph, Graph(rewriter.program.desc))


def _ends(graph: Graph) -> list[str]:
    ends = [node for node in graph._in_order() if node.is_var() and not node.is_ctrl_var() and node.inputs]
    return list(dict.fromkeys(node.name() for node in ends if not node.outputs or _fetched(node)))


def _fetched(node: Node) -> bool:
    return any(op.name() == "fetch" for op in node.outputs)


def _become(graph: Graph, other: Graph) -> None:
    graph._nodes, graph._made, graph._program = other._nodes, other._made, other._program


def _merge(one: passes.Pass, graph: Graph) -> None:
    _become(graph, Graph(one.merge(graph._as_program()).desc))


APPLIED: dict[str, Callable[[passes.Pass, Graph], None]] = {
    "graph_to_program_pass": _to_program,
    passes.VIZ: _draw,
    passes.MERGE: _merge,
    **{name: partial(_rewrite, name) for name in PASSES},
}
passes.APPLIED.update(APPLIED)
