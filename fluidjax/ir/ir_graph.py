"""``framework.IrGraph``: the graph interface for scripts and quantization passes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fluidjax import passes
from fluidjax.base.enums import VarType
from fluidjax.debugger import as_pdf
from fluidjax.framework import Program
from fluidjax.framework.op_desc import OpDescView
from fluidjax.framework.var_desc import VarDescView
from fluidjax.ir import ordering
from fluidjax.ir.applied import MARKED
from fluidjax.ir.graph import Graph
from fluidjax.ir.nodes import Node
from fluidjax.ir.wrapped import IrNode, IrOpNode, IrVarNode, write_attr


class IrGraph:
    """A core.Graph, with ops and variables as IrOpNode and IrVarNode.

    Args:
        graph: the graph. Raises AssertionError for anything else.
        for_test: whether it is a test graph rather than a training graph.
    """

    def __init__(self, graph: Graph, for_test: bool = False):
        if not isinstance(graph, Graph):
            raise AssertionError(
                f"graph must be the instance of core.Graph: received {type(graph).__name__}. Write"
                " IrGraph(core.Graph(program.desc))."
            )
        self.graph = graph
        self._for_test = for_test

    def clone(self) -> IrGraph:
        """A copy of the graph with copies of the nodes."""
        return IrGraph(self.graph.clone(), self._for_test)

    def is_test(self) -> bool:
        """Whether it is a test graph."""
        return self._for_test

    # Nodes that are there.

    def all_nodes(self) -> set[IrNode]:
        """All nodes."""
        return {IrNode(node) for node in self.graph._in_order()}

    def all_var_nodes(self) -> set[IrVarNode]:
        """All variables, including those without a value."""
        return {IrVarNode(node) for node in self.graph._in_order() if node.is_var()}

    def all_persistable_nodes(self) -> set[IrVarNode]:
        """The persistable variables."""
        return {node for node in self.all_var_nodes() if (desc := node.var()) is not None and desc.persistable()}

    def all_op_nodes(self) -> set[IrOpNode]:
        """All ops."""
        return {IrOpNode(node) for node in self.graph._in_order() if node.is_op()}

    def _find_node_by_name(self, nodes: Iterable[Any], node_name: str) -> Any:
        """The last of some nodes with a given name. Raises AssertionError if there is none."""
        found = [node for node in nodes if node.name() == node_name]
        if not found:
            raise AssertionError(f"Cannot find the target node in the giving set: no {node_name!r} is among them.")
        return found[-1]

    # Nodes that are made.

    def create_persistable_node(
        self, name: str, var_type: VarType, shape: Sequence[int], var_dtype: VarType
    ) -> IrVarNode:
        """A new persistable variable.

        Args:
            name, shape: of the variable.
            var_type, var_dtype: its type and dtype.
        """
        desc = _declared(name, var_type, shape, var_dtype)
        desc.set_persistable(True)
        return self.create_var_node_from_desc(desc)

    def create_var_node(self, name: str, var_type: VarType, shape: Sequence[int], var_dtype: VarType) -> IrVarNode:
        """A new variable; arguments as for ``create_persistable_node``."""
        return self.create_var_node_from_desc(_declared(name, var_type, shape, var_dtype))

    def create_control_dep_var(self) -> IrVarNode:
        """A new control variable."""
        return IrVarNode(self.graph.create_control_dep_var())

    def create_var_node_from_desc(self, var_desc: VarDescView) -> IrVarNode:
        """A new variable from a VarDesc."""
        return IrVarNode(self.graph.create_var_node(var_desc))

    def create_op_node(
        self, op_type: str, attrs: Mapping[str, Any], inputs: Mapping[str, Any], outputs: Mapping[str, Any]
    ) -> IrOpNode:
        """A new op, without links.

        Args:
            op_type: its type.
            attrs: maps names to values; others remain unset.
            inputs, outputs: map slots to variable nodes, or lists of them.
        """
        desc = OpDescView()
        desc.set_type(op_type)
        for name, value in attrs.items():
            write_attr(desc, name, value)
        for slot, vars in inputs.items():
            desc.set_input(slot, [var.name() for var in _list(vars)])
        for slot, vars in outputs.items():
            desc.set_output(slot, [var.name() for var in _list(vars)])
        return self.create_op_node_from_desc(desc)

    def create_op_node_from_desc(self, op_desc: OpDescView) -> IrOpNode:
        """A new op from an OpDesc, without links."""
        return IrOpNode(self.graph.create_op_node(op_desc))

    # Links.

    def update_input_link(self, old_input_node: IrNode, new_input_node: IrNode, op_node: IrOpNode) -> None:
        """Make an op read another variable instead of a given one."""
        self._check_here(old_input_node, new_input_node, op_node)
        old_input_node.remove_output(op_node)
        op_node.remove_input(old_input_node)
        self.link_to(new_input_node, op_node)
        op_node.rename_input(old_input_node.name(), new_input_node.name())

    def update_output_link(self, old_output_node: IrNode, new_output_node: IrNode, op_node: IrOpNode) -> None:
        """Make an op write another variable instead of a given one."""
        self._check_here(old_output_node, new_output_node, op_node)
        old_output_node.remove_input(op_node)
        op_node.remove_output(old_output_node)
        self.link_to(op_node, new_output_node)
        op_node.rename_output(old_output_node.name(), new_output_node.name())

    def link_to(self, node_in: IrNode, node_out: IrNode) -> None:
        """Add a link between two nodes."""
        self._check_here(node_in, node_out)
        node_in.append_output(node_out)
        node_out.append_input(node_in)

    def _check_here(self, *nodes: IrNode) -> None:
        strange = [node for node in nodes if self.graph._nodes.get(node.id()) is not node.node]
        if strange:
            raise AssertionError(
                f"The arguments must be in the graph nodes: {strange[0]!r} is not. Take nodes of this graph that were"
                " not removed."
            )

    def safe_remove_nodes(self, remove_nodes: IrNode | Iterable[IrNode]) -> None:
        """Remove one or more nodes, and the links to them."""
        self.graph._remove_all(dict.fromkeys(node.node for node in _several(remove_nodes)))

    def resolve_hazard(self) -> None:
        """After insertions: make ops that write a variable wait for those that read or write its older value."""
        versions: dict[str, list[Node]] = {}
        for node in ordering.topology_sort(self.graph):
            desc = node.op()
            for name in desc.input_arg_names() if desc is not None else ():
                if name not in versions:
                    versions[name] = [self._find_node_by_name(node.inputs, name)]
            for name in desc.output_arg_names() if desc is not None else ():
                versions.setdefault(name, []).append(self._find_node_by_name(node.outputs, name))
        self.graph.resolve_hazard(versions)

    # The whole.

    def has_circle(self) -> bool:
        """Whether the graph has a cycle."""
        return ordering.has_circle(self.graph)

    def graph_num(self) -> int:
        """The number of connected components."""
        return ordering.graph_num(self.graph)

    def topology_sort(self) -> list[IrNode]:
        """The ops in topological order. Raises EnforceNotMet if there is a cycle."""
        return [IrNode(node) for node in ordering.topology_sort(self.graph)]

    def build_adjacency_list(self) -> dict[IrNode, set[IrNode]]:
        """Maps each op to the ops that must run before it."""
        found = ordering.build_adjacency_list(self.graph)
        return {IrNode(op): {IrNode(other) for other in before} for op, before in found.items()}

    def draw(self, save_path: str, name: str, marked_nodes: Any = None, remove_ctr_var: bool = True) -> None:
        """Write the graph to ``save_path/name.dot`` and, if the program ``dot`` is installed, a PDF beside it.

        Args:
            save_path: a directory, created if missing.
            name: file name without suffix.
            marked_nodes: one or more nodes to colour.
            remove_ctr_var: first remove control variables from the graph, permanently.
        """
        if remove_ctr_var:
            self.safe_remove_nodes([node for node in self.all_var_nodes() if node.is_ctrl_var()])
        if self.graph.has(MARKED):
            self.graph.erase(MARKED)
        if marked_nodes is not None:
            self.graph.set(MARKED, {node.node for node in _several(marked_nodes)} & self.graph.nodes())
        os.makedirs(save_path, exist_ok=True)
        path = os.path.join(save_path, name) + ".dot"
        drawing = passes.get_pass(passes.VIZ)
        drawing.set("graph_viz_path", path)
        drawing.apply(self.graph)
        as_pdf(path)

    def to_program(self) -> Program:
        """The program described by the nodes: ops in ``topology_sort`` order, variables in order of creation."""
        return self.graph._as_program()


def _declared(name: str, var_type: VarType, shape: Sequence[int], var_dtype: VarType) -> VarDescView:
    desc = VarDescView(name)
    desc.set_type(var_type)
    desc.set_shape(shape)
    desc.set_dtype(var_dtype)
    return desc


def _list(vars: Any) -> list[Any]:
    return vars if isinstance(vars, list) else [vars]


def _several(nodes: IrNode | Iterable[IrNode]) -> Iterable[IrNode]:
    return [nodes] if isinstance(nodes, IrNode) else nodes
