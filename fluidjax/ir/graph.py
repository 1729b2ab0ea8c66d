"""``core.Graph``: block 0 of a program as nodes that scripts can relink.

A graph is another form of a program: it is built from descs, ``graph_to_program_pass`` converts it back, and the passes
of this package convert it to a program, modify that, and convert it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fluidjax.base.errors import EnforceNotMet
from fluidjax.framework import Program
from fluidjax.framework.descs import BlockDescView, ProgramDescView
from fluidjax.framework.names import CONTROL_DEP_VAR_PREFIX, EMPTY_VAR_NAME
from fluidjax.framework.op_desc import OpDescView
from fluidjax.framework.var_desc import VarDescView
from fluidjax.ir.nodes import Node, NodeType, copied_op, copied_var, link
from fluidjax.ir.ordering import topology_sort


class Graph:
    """The ops and variables of block 0, as nodes.

    Every write to a variable has a node of its own, which precedes the ops that read that value. Where an op must wait
    for one that reads or writes an older value, a control variable links the two.

    Args:
        program: a ProgramDesc; the graph copies its descs.
    """

    def __init__(self, program: ProgramDescView):
        self._program = program
        self._nodes: dict[int, Node] = {}
        self._made = 0
        self._attrs: dict[str, Any] = {}
        self.resolve_hazard(self._build(program.block(0)))

    def _build(self, block: BlockDescView) -> dict[str, list[Node]]:
        """Create the nodes of a block; returns a dict from names to nodes, oldest value first."""
        declared = {var.name(): var for var in block.all_vars()}
        versions: dict[str, list[Node]] = {}
        for desc in (block.op(at) for at in range(block.op_size())):
            op = self.create_op_node(desc)
            for name in desc.input_arg_names():
                held = versions.get(name) or versions.setdefault(name, [self._version(name, declared)])
                link(held[-1], op)
            for name in desc.output_arg_names():
                var = self._version(name, declared)
                versions.setdefault(name, []).append(var)
                link(op, var)
        for name, var_desc in declared.items():
            if name not in versions and name != EMPTY_VAR_NAME:
                versions[name] = [self.create_var_node(var_desc)]
        return versions

    def _version(self, name: str, declared: Mapping[str, VarDescView]) -> Node:
        known = declared.get(name)
        return self.create_var_node(known) if known is not None else self.create_empty_node(name, NodeType.Variable)

    # Nodes.

    def nodes(self) -> set[Node]:
        """All nodes."""
        return set(self._nodes.values())

    def _in_order(self) -> list[Node]:
        """All nodes in order of creation."""
        return list(self._nodes.values())

    def _made_node(self, name: str, kind: NodeType, desc: OpDescView | VarDescView | None) -> Node:
        node = Node(self._made, name, kind, desc)
        self._nodes[self._made] = node
        self._made += 1
        return node

    def create_op_node(self, desc: OpDescView) -> Node:
        """A new op node, with a copy of the desc and no links."""
        return self._made_node(desc.type(), NodeType.Operation, copied_op(desc))

    def create_var_node(self, desc: VarDescView) -> Node:
        """A new variable node, with a copy of the desc and no links."""
        return self._made_node(desc.name(), NodeType.Variable, copied_var(desc))

    def create_empty_node(self, name: str, kind: NodeType) -> Node:
        """A new node without a desc."""
        return self._made_node(name, kind, None)

    def create_control_dep_var(self) -> Node:
        """A new control variable."""
        return self.create_empty_node(f"{CONTROL_DEP_VAR_PREFIX}@{self._made}", NodeType.Variable)

    def retrieve_node(self, number: int) -> Node:
        """The node with a given number. Raises EnforceNotMet if there is none."""
        if number not in self._nodes:
            raise EnforceNotMet(f"Graph: no node {number}. Expected one of nodes(). Take the id() of one of them.")
        return self._nodes[number]

    def remove_node(self, node: Node) -> Node:
        """Remove a node and return it, leaving links to it. Raises EnforceNotMet if it belongs to another graph."""
        if self._nodes.get(node.id()) is not node:
            raise EnforceNotMet(f"Graph: {node!r} is no node of it. Expected one of nodes(). Take one of them.")
        return self._nodes.pop(node.id())

    def _remove_all(self, nodes: Iterable[Node]) -> None:
        """Remove nodes and the links to them."""
        gone = {self.remove_node(node) for node in nodes}
        for node in self._nodes.values():
            node._without(gone)

    def release_nodes(self) -> list[Node]:
        """Remove and return all nodes."""
        found = self._in_order()
        self._nodes.clear()
        return found

    def _write(self, desc: ProgramDescView) -> None:
        """Write block 0 of a ProgramDesc; the other blocks are the program's, as ops refer to them."""
        message = desc.proto
        if len(message.blocks) == 1:
            message.blocks.extend(self._program.proto.blocks[1:])
        block = message.blocks[0]
        del block.vars[:], block.ops[:]
        declared: dict[str, Any] = {}
        for node in self._nodes.values():
            if isinstance(node._desc, VarDescView):
                declared.setdefault(node.name(), node._desc.proto)
        block.vars.extend(declared.values())
        block.ops.extend(node._desc.proto for node in topology_sort(self) if isinstance(node._desc, OpDescView))
        desc._changed()

    def _as_program(self) -> Program:
        desc = ProgramDescView()
        self._write(desc)
        return Program._construct_from_desc(desc)

    def origin_program_desc(self) -> ProgramDescView:
        """The ProgramDesc from which the graph was built."""
        return self._program

    def clone(self) -> Graph:
        """A copy of the graph with copies of the nodes; attributes are not copied."""
        other = Graph.__new__(Graph)
        other._program, other._nodes, other._made, other._attrs = self._program, {}, 0, {}
        other._take(self)
        return other

    def _take(self, other: Graph) -> None:
        """Copy another graph's nodes, preserving the order of links."""
        made = {node: self._copy(node) for node in other._in_order()}
        for node, copy in made.items():
            copy._inputs = [made[near] for near in node._inputs if near in made]
            copy._outputs = [made[near] for near in node._outputs if near in made]

    def _copy(self, node: Node) -> Node:
        desc = node._desc
        if isinstance(desc, OpDescView):
            return self.create_op_node(desc)
        if isinstance(desc, VarDescView):
            return self.create_var_node(desc)
        return self.create_control_dep_var() if node.is_ctrl_var() else self.create_empty_node(node.name(), node._kind)

    # Who waits for whom.

    def resolve_hazard(self, versions: Mapping[str, Sequence[Node]]) -> None:
        """Make each op that writes a variable wait for those that read or write its older value.

        Args:
            versions: maps names to nodes, oldest value first.
        """
        for _, nodes in sorted(versions.items()):
            for old, new in reversed(list(zip(nodes[:-1], nodes[1:], strict=True))):
                self._wait(old, new)

    def _wait(self, old: Node, new: Node) -> None:
        if not new._inputs:
            raise EnforceNotMet(
                f"Graph: nothing writes the newer value of {new.name()}. Expected an op before each value but the"
                " first. Link the op that writes it."
            )
        write, before = new._inputs[0], old._inputs[0] if old._inputs else None
        if before is not None and before is not write:
            self._control(before, write)
        for read in old.outputs:
            if read is not write and not any(out in write._inputs for out in read._outputs):
                self._control(read, write)

    def _control(self, first: Node, then: Node) -> None:
        var = self.create_control_dep_var()
        link(first, var)
        link(var, then)

    # What passes leave for one another.

    def has(self, name: str) -> bool:
        """Whether an attribute has been set."""
        return name in self._attrs

    def set(self, name: str, value: Any) -> None:
        """Set an attribute. Raises EnforceNotMet if it is already set."""
        if name in self._attrs:
            raise EnforceNotMet(
                f"{name} already set in the graph. Expected a new attribute. Call erase({name!r}) first."
            )
        self._attrs[name] = value

    set_not_owned = set

    def _get(self, name: str) -> Any:
        if name not in self._attrs:
            raise EnforceNotMet(f"{name} attribute not registered in the graph. Expected one that set() gave it.")
        return self._attrs[name]

    get_bool = get_int = get_float = get_double = get_string = get_marked_nodes = _get

    def erase(self, name: str) -> None:
        """Remove an attribute. Raises EnforceNotMet if it is not set."""
        self._get(name)
        del self._attrs[name]


def graph_safe_remove_nodes(graph: Graph, nodes: Iterable[Node]) -> None:
    """Remove nodes from a graph, and the links to them."""
    graph._remove_all(nodes)
