"""``fluid.graphviz``: builds graphs in Graphviz's language."""

from __future__ import annotations

import itertools
import logging
import shutil
import subprocess
from typing import Any

__all__ = ["Edge", "Graph", "GraphPreviewGenerator", "Node", "Rank", "crepr"]


def crepr(v: Any) -> str:
    """A value in Graphviz's notation: strings are quoted."""
    return f'"{v}"' if isinstance(v, str) else str(v)


def _attributes(attrs: dict[str, Any]) -> str:
    return ",".join(f"{key}={crepr(value)}" for key, value in attrs.items())


class Rank:
    """A group of nodes drawn in the same row.

    Args:
        kind: Graphviz's rank type: ``same``, ``min``, ``max`` ...
        name: the name by which nodes refer to the group.
        priority: order in which groups are written.
    """

    def __init__(self, kind: str, name: str, priority: int):
        self.kind, self.name, self.priority = kind, name, priority
        self.nodes: list[Node] = []

    def __str__(self) -> str:
        return f"{{rank={self.kind};{','.join(node.name for node in self.nodes)}}}" if self.nodes else ""


class Graph:
    """A directed graph.

    Args:
        title: its title.
        **attrs: Graphviz graph attributes.
    """

    _ranks = itertools.count()

    def __init__(self, title: str, **attrs: Any):
        self.title, self.attrs = title, attrs
        self.nodes: list[Node] = []
        self.edges: list[Edge] = []
        self.rank_groups: dict[str, Rank] = {}

    def code(self) -> str:
        """The graph in Graphviz's language."""
        return str(self)

    def rank_group(self, kind: str, priority: int) -> str:
        """Create a group of nodes drawn in one row; returns its name, to be used as the ``rank`` of nodes."""
        name = f"rankgroup-{next(Graph._ranks)}"
        self.rank_groups[name] = Rank(kind, name, priority)
        return name

    def node(self, label: str, prefix: str, description: str = "", **attrs: Any) -> Node:
        """Create a node.

        Args:
            label: its label in Graphviz's notation, including quotes.
            prefix: prefix of its name.
            description: stored with the node.
            **attrs: Graphviz node attributes; ``rank`` names a group of this graph.
        """
        node = Node(label, prefix, description, **attrs)
        if "rank" in attrs:
            self.rank_groups[attrs["rank"]].nodes.append(node)
        self.nodes.append(node)
        return node

    def edge(self, source: Node, target: Node, **attrs: Any) -> Edge:
        """Create an edge between two nodes, with Graphviz edge attributes."""
        edge = Edge(source, target, **attrs)
        self.edges.append(edge)
        return edge

    def compile(self, dot_path: str) -> str:
        """Write the graph to a file ending in ``.dot``; if the program ``dot`` is installed, draw it beside the file.

        Returns the path of the PDF.
        """
        with open(dot_path, "w", encoding="utf-8") as file:
            file.write(str(self))
        image_path = dot_path[:-3] + "pdf"
        if (dot := shutil.which("dot")) is not None:
            subprocess.run([dot, "-Tpdf", dot_path, "-o", image_path], check=True)
        logging.warning("write block debug graph to %s", image_path)
        return image_path

    def show(self, dot_path: str) -> None:
        """Draw the graph, and open the PDF if the machine has the command ``open``."""
        image = self.compile(dot_path)
        if (command := shutil.which("open")) is not None:
            subprocess.run([command, image], check=True)

    def __str__(self) -> str:
        groups = sorted(self.rank_groups.values(), key=lambda group: group.priority)
        lines = ["digraph G {", f"title = {crepr(self.title)}"]
        lines += [f"{key}={crepr(value)};" for key, value in self.attrs.items()]
        lines += [*map(str, groups), "", *map(str, self.nodes), *map(str, self.edges), "}"]
        return "\n".join(lines)


class Node:
    """A node; see ``Graph.node``."""

    counter = 1

    def __init__(self, label: str, prefix: str, description: str = "", **attrs: Any):
        self.label, self.description, self.attrs = label, description, attrs
        self.name = f"{prefix}_{Node.counter}"
        Node.counter += 1

    def __str__(self) -> str:
        return f"{self.name} [label={self.label} {',' + _attributes(self.attrs) if self.attrs else ''} ];"


class Edge:
    """An edge; see ``Graph.edge``."""

    def __init__(self, source: Node, target: Node, **attrs: Any):
        self.source, self.target, self.attrs = source, target, attrs

    def __str__(self) -> str:
        extra = f"[{_attributes(self.attrs)}]" if self.attrs else ""
        return f"{self.source.name} -> {self.target.name} {extra}"


class GraphPreviewGenerator:
    """Draws a network: parameters, ops and other variables in rows.

    Args:
        title: title of the drawing.
    """

    def __init__(self, title: str):
        self.graph = Graph(title, layout="dot", concentrate="true", rankdir="TB")
        self.op_rank = self.graph.rank_group("same", 2)
        self.param_rank = self.graph.rank_group("same", 1)
        self.arg_rank = self.graph.rank_group("same", 0)

    def __call__(self, path: str = "temp.dot", show: bool = False) -> None:
        """Write the drawing, and optionally show it."""
        if show:
            self.graph.show(path)
        else:
            self.graph.compile(path)

    def add_param(self, name: str, data_type: Any, highlight: bool = False) -> Node:
        """Add a node for a parameter, with its type."""
        head = f'<tr><td bgcolor="#2b787e"><b>{name}</b></td></tr>'
        label = f'<<table cellpadding="5">{head}<tr><td>{data_type}</td></tr></table>>'
        color = "orange" if highlight else "#148b97"
        return self.graph.node(
            label, "param", name, shape="none", style="rounded,filled,bold", width="1.3", color=color,
            fontcolor="#ffffff", fontname="Arial",
        )  # fmt: skip

    def add_op(self, opType: str, highlight: bool = False, **kwargs: Any) -> Node:
        """Add a node for an op; other arguments are accepted for compatibility with Fluid."""
        color = "orange" if highlight else "#303A3A"
        return self.graph.node(
            f"<<B>{opType}</B>>", "op", opType, shape="box", style="rounded, filled, bold", color=color,
            fontname="Arial", fontcolor="#ffffff", width="1.3", height="0.84",
        )  # fmt: skip

    def add_arg(self, name: str, highlight: bool = False) -> Node:
        """Add a node for a variable that is not a parameter."""
        color = "orange" if highlight else "#dddddd"
        return self.graph.node(
            crepr(name), "arg", name, shape="box", style="rounded,filled,bold", fontname="Arial", fontcolor="#999999",
            color=color,
        )  # fmt: skip

    def add_edge(self, source: Node, target: Node, highlight: bool = False, **kwargs: Any) -> Edge:
        """Add an edge."""
        return self.graph.edge(source, target, color="orange" if highlight else "#000000", **kwargs)
