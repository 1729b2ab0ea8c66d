"""``core.Node``: an op or variable of a graph, with links to the nodes before and after it."""

from __future__ import annotations

import enum

from fluidjax.base.errors import EnforceNotMet
from fluidjax.framework.names import CONTROL_DEP_VAR_PREFIX
from fluidjax.framework.op_desc import OpDescView
from fluidjax.framework.var_desc import VarDescView
from fluidjax.proto import framework_pb2 as pb


class NodeType(enum.Enum):
    """The type of a node."""

    Operation = 0
    Variable = 1


class Node:
    """A node; created by ``Graph.create_op_node`` etc.

    A variable written several times has one node per write. The desc is the node's own copy.

    Attributes:
        inputs, outputs: the nodes before and after it, in the order of linking.
    """

    Type = NodeType
    Operation = NodeType.Operation
    Variable = NodeType.Variable

    def __init__(self, number: int, name: str, kind: NodeType, desc: OpDescView | VarDescView | None):
        self._id, self._name, self._kind, self._desc = number, name, kind, desc
        self._inputs: list[Node] = []
        self._outputs: list[Node] = []

    def __hash__(self) -> int:
        return self._id  # iterate over sets of nodes in the same order in every process

    def __repr__(self) -> str:
        return f"Node({self._id}, {self._name!r}, {self._kind.name})"

    def id(self) -> int:
        """Its number; nodes are numbered in order of creation."""
        return self._id

    def name(self) -> str:
        """The variable's name or the op's type at the time of creation."""
        return self._name

    def node_type(self) -> NodeType:
        """The type of the node."""
        return self._kind

    def is_op(self) -> bool:
        """Whether it is an op."""
        return self._kind is NodeType.Operation

    def is_var(self) -> bool:
        """Whether it is a variable."""
        return self._kind is NodeType.Variable

    def is_ctrl_var(self) -> bool:
        """Whether it is a control variable: one without a value that orders two ops."""
        return self.is_var() and CONTROL_DEP_VAR_PREFIX in self._name

    def op(self) -> OpDescView | None:
        """The op's desc. Raises EnforceNotMet if the node is a variable."""
        if not self.is_op():
            raise EnforceNotMet(f"Node {self._name}: expected an op, received a variable. Ask is_op() first.")
        return self._desc  # type: ignore[return-value]

    def var(self) -> VarDescView | None:
        """The variable's desc; None if the program does not declare it. Raises EnforceNotMet if the node is an op."""
        if not self.is_var():
            raise EnforceNotMet(f"Node {self._name}: expected a variable, received an op. Ask is_var() first.")
        return self._desc  # type: ignore[return-value]

    @property
    def inputs(self) -> list[Node]:
        """The nodes before it."""
        return list(self._inputs)

    @property
    def outputs(self) -> list[Node]:
        """The nodes after it."""
        return list(self._outputs)

    def append_input(self, node: Node) -> None:
        """Add a node before it; the caller updates the other end."""
        self._inputs.append(node)

    def append_output(self, node: Node) -> None:
        """Add a node after it; the caller updates the other end."""
        self._outputs.append(node)

    def remove_input(self, node: Node | int) -> None:
        """Remove a link to a node before it, given as a node or number, if there is one."""
        _take_out(self._inputs, node)

    def remove_output(self, node: Node | int) -> None:
        """Remove a link to a node after it, given as a node or number, if there is one."""
        _take_out(self._outputs, node)

    def clear_inputs(self) -> None:
        """Remove all links to nodes before it."""
        self._inputs.clear()

    def clear_outputs(self) -> None:
        """Remove all links to nodes after it."""
        self._outputs.clear()

    def _without(self, gone: set[Node]) -> None:
        self._inputs = [node for node in self._inputs if node not in gone]
        self._outputs = [node for node in self._outputs if node not in gone]


def _take_out(nodes: list[Node], node: Node | int) -> None:
    number = node if isinstance(node, int) else node.id()
    at = next((at for at, other in enumerate(nodes) if other.id() == number), None)
    if at is not None:
        del nodes[at]


def link(first: Node, then: Node) -> None:
    """Link two nodes, at both ends."""
    first.append_output(then)
    then.append_input(first)


def copied_op(desc: OpDescView) -> OpDescView:
    """A copy of a desc."""
    message = pb.OpDesc()
    message.CopyFrom(desc.proto)
    return OpDescView(message)


def copied_var(desc: VarDescView) -> VarDescView:
    """A copy of a desc."""
    message = pb.VarDesc()
    message.CopyFrom(desc.proto)
    return VarDescView(message)
