"""Hand-written servers and clients: what a program sends and receives, and the block a server runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidjax.base.enums import OpRole
from fluidjax.framework import Block, Variable
from fluidjax.layer_helper import LayerHelper
from fluidjax.layers._control_flow.blocks import BlockGuard


class BlockGuardServ(BlockGuard):
    """The block run by a server; the serving op is appended on exit."""

    def __init__(self, server: ListenAndServ) -> None:
        if not isinstance(server, ListenAndServ):
            raise TypeError(
                f"BlockGuardServ takes a ListenAndServ; received {type(server).__name__}. Use `with server.do():`."
            )
        super().__init__(server.helper.main_program)
        self.server = server

    def __exit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> bool:
        if exc_type is None:
            self.server.complete_op()
        return super().__exit__(exc_type, exc_val, exc_tb)


class ListenAndServ:
    """A server that runs a block once all clients have sent: ``with server.do(): ...`` writes the block.

    Args:
        endpoint: "host:port" to listen on.
        inputs: what the clients send, as variables or names.
        fan_in: number of clients that report to the server.
        optimizer_mode: whether the block updates parameters, for ``get_params_and_grads``.
    """

    def __init__(self, endpoint: str, inputs: Sequence[Any], fan_in: int = 1, optimizer_mode: bool = True) -> None:
        self.helper = LayerHelper("listen_and_serv")
        self.inputs, self.outputs = inputs, []  # type: ignore[var-annotated]
        self.endpoint = endpoint
        self.fan_in = fan_in
        self.optimizer_mode = optimizer_mode

    def do(self) -> BlockGuardServ:
        """Context manager for the block."""
        return BlockGuardServ(self)

    def get_params_and_grads(self) -> tuple[list[Any], list[Any]]:
        """Inside the block: the parameters updated by its ops, and their gradients, by name.

        Without ``optimizer_mode``, both are the outer variables read by the ops of the block.
        """
        ops, parent = self.helper.main_program.current_block().ops, self.parent_block()
        if not self.optimizer_mode:
            read = [parent.var(name) for op in ops for name in op.input_arg_names]
            return read, list(read)
        updates = [op for op in ops if "Param" in op.input_names and "Grad" in op.input_names]
        return [op.input("Param")[0] for op in updates], [op.input("Grad")[0] for op in updates]

    def parent_block(self) -> Block:
        """Inside the block: the enclosing block."""
        program = self.helper.main_program
        parent = program.current_block().parent_idx
        if parent < 0:
            raise AssertionError("ListenAndServ: expected to be inside `with server.do():`, found no block around")
        return program.block(parent)

    def complete_op(self) -> None:
        """Append the op that serves the current block."""
        self.parent_block().append_op(
            type="listen_and_serv",
            inputs={"X": self.inputs},
            outputs={},
            attrs={
                "endpoint": self.endpoint,
                "Fanin": self.fan_in,
                "optimize_blocks": [self.helper.main_program.current_block()],
                "distributed_mode": 0,
                "grad_to_block_id": [""],
            },
        )


def Send(endpoints: str, send_vars: list[Variable], dummy_output: Any = None, sync: bool = True) -> None:
    """Send variables to servers.

    Args:
        endpoints: "host:port" of each variable's server, separated by commas.
        send_vars: list of variables.
        dummy_output: one or more variables on which later ops depend, to order them after the send.
        sync: tell the servers that the transfer is complete.
    """
    servers, dummies = _endpoints(endpoints), _listed(send_vars, dummy_output, "Send", "send_vars")
    helper = LayerHelper("Send")
    attrs = {"epmap": servers, "op_role": OpRole.RPC}
    helper.append_op(type="send", inputs={"X": send_vars}, outputs={"Out": dummies}, attrs=attrs)
    if sync:
        attrs = {"endpoints": _distinct(servers)}
        helper.append_op(type="send_barrier", inputs={"X": dummies}, outputs={"Out": []}, attrs=attrs)


def Recv(endpoints: str, get_vars: list[Variable], dummy_input: Any = None, sync: bool = True) -> list[Variable]:
    """Receive variables from servers, under the same names; returns `get_vars`.

    Args:
        endpoints: "host:port" of each variable's server, separated by commas.
        get_vars: list of variables.
        dummy_input: one or more variables that order the transfer after an earlier send.
        sync: tell the servers that the transfer is complete.
    """
    servers, dummies = _endpoints(endpoints), _listed(get_vars, dummy_input, "Recv", "get_vars")
    helper = LayerHelper("Recv")
    helper.append_op(type="recv", inputs={"X": dummies}, outputs={"Out": get_vars}, attrs={"epmap": servers})
    if sync:
        attrs = {"endpoints": _distinct(servers)}
        helper.append_op(type="fetch_barrier", inputs={}, outputs={"Out": get_vars}, attrs=attrs)
    return get_vars


def _endpoints(text: str) -> list[str]:
    return text.split(",")


def _distinct(endpoints: list[str]) -> list[str]:
    return list(dict.fromkeys(endpoints))


def _listed(variables: Any, dummies: Any, layer: str, argument: str) -> list[Variable]:
    if type(variables) is not list:
        raise AssertionError(
            f"{layer}: expected {argument} as a list, received {type(variables).__name__}; wrap the one in a list"
        )
    return [dummies] if isinstance(dummies, Variable) else list(dummies or [])
