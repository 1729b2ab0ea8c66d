"""``framework.IrNode`` and its subclasses: the nodes seen by scripts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidjax.base.enums import VarType
from fluidjax.framework import Block
from fluidjax.framework.descs import BlockDescView, ProgramDescView
from fluidjax.framework.op_desc import OpDescView
from fluidjax.framework.var_desc import VarDescView
from fluidjax.ir.nodes import Node, NodeType


class IrNode:
    """A node; two of them may wrap the same node, see ``node``.

    Args:
        node: a core.Node. Raises AssertionError for anything else.
    """

    def __init__(self, node: Node):
        _check(isinstance(node, Node), "node must be the instance of core.Node.", node)
        self.node = node

    def __hash__(self) -> int:
        return hash(self.node)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id()}, {self.name()!r})"

    def name(self) -> str:
        """The variable's name or the op's type at the time of creation."""
        return self.node.name()

    def node_type(self) -> NodeType:
        """``core.Node.Type.Operation`` or ``Variable``."""
        return self.node.node_type()

    def var(self) -> VarDescView | None:
        """The variable's desc; None if the program does not declare it. Raises EnforceNotMet if it is an op."""
        return self.node.var()

    def op(self) -> OpDescView | None:
        """The op's desc. Raises EnforceNotMet if it is a variable."""
        return self.node.op()

    def id(self) -> int:
        """The node's number."""
        return self.node.id()

    def is_op(self) -> bool:
        """Whether it is an op."""
        return self.node.is_op()

    def is_var(self) -> bool:
        """Whether it is a variable."""
        return self.node.is_var()

    def is_ctrl_var(self) -> bool:
        """Whether it is a control variable."""
        return self.node.is_ctrl_var()

    def clear_inputs(self) -> None:
        """Remove all links to nodes before it."""
        self.node.clear_inputs()

    def clear_outputs(self) -> None:
        """Remove all links to nodes after it."""
        self.node.clear_outputs()

    def remove_input_by_id(self, node_id: int) -> None:
        """Remove a link to the node before it with a given number."""
        self.node.remove_input(node_id)

    def remove_output_by_id(self, node_id: int) -> None:
        """Remove a link to the node after it with a given number."""
        self.node.remove_output(node_id)

    def remove_input(self, node: IrNode) -> None:
        """Remove a link to a node before it."""
        self.node.remove_input(node.node)

    def remove_output(self, node: IrNode) -> None:
        """Remove a link to a node after it."""
        self.node.remove_output(node.node)

    def append_input(self, node: IrNode) -> None:
        """Add a node before it; the caller updates the other end."""
        self.node.append_input(node.node)

    def append_output(self, node: IrNode) -> None:
        """Add a node after it; the caller updates the other end."""
        self.node.append_output(node.node)

    @property
    def inputs(self) -> Sequence[IrNode]:
        """The nodes before it."""
        return [IrNode(node) for node in self.node.inputs]

    @property
    def outputs(self) -> Sequence[IrNode]:
        """The nodes after it."""
        return [IrNode(node) for node in self.node.outputs]


class IrVarNode(IrNode):
    """A variable.

    Args:
        node: a core.Node of a variable. Raises AssertionError for anything else.
    """

    def __init__(self, node: Node):
        variable = isinstance(node, Node) and node.is_var()
        _check(variable, "node must be the instance of core.Node and it must be a variable node.", node)
        super().__init__(node)

    @property
    def _desc(self) -> VarDescView:
        desc = self.node.var()
        _check(desc is not None, "The node variable description can not be None.", self)
        return desc  # type: ignore[return-value]

    def set_shape(self, shape: Sequence[int]) -> None:
        """Set the declared shape."""
        self._desc.set_shape(shape)

    def persistable(self) -> bool:
        """Whether the variable is persistable."""
        return self._desc.persistable()

    def type(self) -> VarType:
        """The type of the variable: LOD_TENSOR, SELECTED_ROWS ..."""
        return self._desc.type()

    def dtype(self) -> VarType:
        """The declared dtype."""
        return self._desc.dtype()

    def shape(self) -> list[int]:
        """The declared shape, -1 if unknown."""
        return self._desc.shape()

    @property
    def inputs(self) -> list[IrOpNode]:
        """The ops that write it."""
        return [IrOpNode(node) for node in self.node.inputs]

    @property
    def outputs(self) -> list[IrOpNode]:
        """The ops that read it."""
        return [IrOpNode(node) for node in self.node.outputs]


class IrOpNode(IrNode):
    """An op.

    Args:
        node: a core.Node of an op. Raises AssertionError for anything else.
    """

    def __init__(self, node: Node):
        op = isinstance(node, Node) and node.is_op()
        _check(op, "node must be the instance of core.Node and it must be a operator node.", node)
        super().__init__(node)

    @property
    def _desc(self) -> OpDescView:
        desc = self.node.op()
        _check(desc is not None, "The node operator description can not be None.", self)
        return desc  # type: ignore[return-value]

    def rename_input(self, old_input_name: str, new_input_name: str) -> None:
        """Rename an input variable, leaving links unchanged."""
        self._desc._rename_input(old_input_name, new_input_name)

    def rename_output(self, old_output_name: str, new_output_name: str) -> None:
        """Rename an output variable, leaving links unchanged."""
        self._desc._rename_output(old_output_name, new_output_name)

    def input(self, name: str) -> list[str]:
        """The variables of an input slot."""
        return self._desc.input(name)

    def output(self, name: str) -> list[str]:
        """The variables of an output slot."""
        return self._desc.output(name)

    def set_type(self, new_type: str) -> None:
        """Change the op type in the desc; the node keeps its name."""
        self._desc.set_type(new_type)

    def set_attr(self, name: str, val: object) -> None:
        """Set an attribute: a number, string, bool or block, or a list of these."""
        write_attr(self._desc, name, val)

    _update_desc_attr = set_attr

    def input_arg_names(self) -> list[str]:
        """The variables of all input slots."""
        return self._desc.input_arg_names()

    def output_arg_names(self) -> list[str]:
        """The variables of all output slots."""
        return self._desc.output_arg_names()

    @property
    def inputs(self) -> list[IrVarNode]:
        """The variables it reads, and the control variables before it."""
        return [IrVarNode(node) for node in self.node.inputs]

    @property
    def outputs(self) -> list[IrVarNode]:
        """The variables it writes, and the control variables after it."""
        return [IrVarNode(node) for node in self.node.outputs]


def write_attr(desc: OpDescView, name: str, value: Any) -> None:
    """Set an attribute of a desc; descs of blocks and programs are stored as bytes."""
    if isinstance(value, Block):
        desc.set_block_attr(name, value.idx)
    elif isinstance(value, list) and value and all(isinstance(one, Block) for one in value):
        desc.set_blocks_attr(name, [one.idx for one in value])
    elif isinstance(value, (BlockDescView, ProgramDescView)):
        desc._set_attr(name, value.serialize_to_string().decode("latin-1"))
    else:
        desc._set_attr(name, value)


def _check(fine: bool, wrong: str, received: object) -> None:
    if not fine:
        raise AssertionError(f"{wrong} Received {received!r}. Take a node of IrGraph's all_nodes() or its like.")
