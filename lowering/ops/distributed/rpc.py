"""Communication between trainers and parameter servers, carried out by services of the front end."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

import numpy as np

from lowering.engine.host import service
from lowering.registry import Blocks, Longs, Value, op

_HOME = ["127.0.0.1:6164"]


def _rest(ctx: Any) -> list[Any]:
    """The ops after this one, in its block."""
    return ctx.runner.program.blocks[ctx.op.block_idx].ops[ctx.op.index + 1 :]


def _wanted(view: Any) -> list[tuple[str, str]]:
    """(endpoint, name there) of what a ``recv`` asks for."""
    attrs = view.attrs
    names = attrs.get("recv_varnames") or attrs.get("varnames") or view.outputs["Out"]
    return list(zip(attrs["epmap"], names, strict=True))


def _batch(ops: list[Any]) -> tuple[list[tuple[str, str]], bool]:
    """(endpoint, name there) of all that the ``recv`` ops at the beginning ask for; whether they end a round."""
    found = list(takewhile(lambda view: view.type == "recv", ops))
    in_turn = all(view.attrs.get("with_barrier", True) for view in found)
    then = ops[len(found)].type if len(found) < len(ops) else ""
    return [pair for view in found for pair in _wanted(view)], in_turn and then == "fetch_barrier"


@op(out="Out*", kind="host", lod=None, absent="x", moves="late")
def send(
    x: list[Value],
    *,
    trainer_id: int = 0,
    epmap: list[str] = _HOME,
    sections: Longs = [],  # noqa: B006
    send_varnames: list[str] = [],  # noqa: B006
    num: int = 0,
    merge_add: bool = False,
    use_send_handler: bool = True,
    ctx: Any,
):
    """Send each X to its endpoint in ``epmap``; with ``send_varnames``, the communicator splits and sends later.

    Values for the same server share a message, sent by the last such ``send`` of the block or by the ``send_barrier``
    after it. A value that is not a gradient but counts this trainer's steps (no ``use_send_handler``) is sent to all
    endpoints immediately, unless the communicator does not count.
    """
    names = ctx.op.inputs.get("X", ())
    if not use_send_handler:
        service("count")(send_varnames or names, x, epmap, bool(send_varnames))
    elif send_varnames or not names:  # of a step without tables a geo trainer says only that it is over
        service("push")(names, x, send_varnames, ctx.runner.outside)
    else:
        service("send")(names, x, epmap, not any(map(_takes_along, _rest(ctx))), ctx.runner.outside)


def _takes_along(view: Any) -> bool:
    """Whether an op sends, with its own, what ops before it had to send."""
    attrs = view.attrs
    if view.type == "send":
        return bool(attrs.get("use_send_handler", True) and view.inputs.get("X") and not attrs.get("send_varnames"))
    return view.type == "send_barrier" and not attrs.get("half_async", False)


@op(out="Out*", kind="host", lod=None, absent="x")
def recv(
    x: list[Value],
    *,
    epmap: list[str] = [],  # noqa: B006
    trainer_id: int = 0,
    with_barrier: bool = True,
    varnames: list[str] = [],  # noqa: B006
    recv_varnames: list[str] = [],  # noqa: B006
    do_not_run: int = 0,
    ctx: Any,
):
    """Out = the values held by the endpoints in ``epmap``, under the names of Out, or sharded as ``recv_varnames``.

    Values that consecutive ``recv`` ops want from the same server share a message, which also counts as the barrier if
    a ``fetch_barrier`` follows. A communicator that receives by itself sets ``do_not_run``.
    """
    parts = service("recv")(
        trainer_id, _wanted(ctx.op), lambda: _batch([ctx.op, *_rest(ctx)]), with_barrier, ctx.runner.outside
    )
    if len(ctx.op.outputs["Out"]) < len(parts):
        return [np.concatenate(parts)]
    return parts


@op(out="Out*", kind="host", lod=None, absent="x")
def send_barrier(
    x: list[Value], *, trainer_id: int = 0, endpoints: list[str] = _HOME, half_async: bool = False, ctx: Any
):
    """Tell the endpoints that this trainer has sent all its gradients.

    Values that the ``recv`` ops after it want before a ``fetch_barrier`` are asked for by the same messages. With
    ``half_async``, tell the communicator instead, which then sends and receives.
    """
    batch, ends = _batch(_rest(ctx))
    service("send_barrier")(trainer_id, endpoints, half_async, batch if ends else [], ctx.runner.outside)


@op(out="Out*", kind="host", lod=None, absent="x")
def fetch_barrier(x: list[Value] = (), *, trainer_id: int = 0, endpoints: list[str] = _HOME, ctx: Any):
    """Tell the endpoints that this trainer has received all its parameters."""
    service("fetch_barrier")(trainer_id, endpoints, ctx.runner.outside)


@op(out="Out*", kind="host", lod=None)
def prefetch(x: list[Value], *, trainer_id: int = 0, epmap: list[str] = _HOME, ctx: Any):
    """Out = for each X (ids), the rows looked up by its endpoint."""
    return service("prefetch")(trainer_id, epmap, ctx.op.inputs["X"], [np.asarray(ids).reshape(-1) for ids in x])


@op(out="", kind="host", lod=None)
def checkpoint_notify(
    *,
    epmap: list[str] = _HOME,
    dir: str,
    lookup_table: str,
    trainer_id: int = 0,
    ctx: Any,
):
    """Tell the endpoints to save their shard of ``lookup_table`` under ``dir``."""
    service("checkpoint_notify")(trainer_id, epmap, dir, lookup_table)


@op(out="", kind="host", lod=None)
def recv_save(
    *,
    dtype: int = 5,
    overwrite: bool = True,
    file_path: str,
    shape: Longs = [],  # noqa: B006
    slice_varnames: list[str] = [],  # noqa: B006
    remote_varnames: list[str] = [],  # noqa: B006
    slice_shapes: list[str] = [],  # noqa: B006
    endpoints: list[str] = [],  # noqa: B006
    trainer_id: int = 0,
    ctx: Any,
):
    """Save the concatenated shards held by the endpoints as one file of ``shape``."""
    wanted = list(zip(endpoints, remote_varnames, strict=True))
    service("recv_save")(trainer_id, wanted, file_path, shape, dtype, overwrite)


@op(out="", kind="host", lod=None, absent="x")
def listen_and_serv(
    x: list[Value],
    *,
    endpoint: str = _HOME[0],
    pserver_id: int = -1,
    grad_to_block_id: list[str] = [],  # noqa: B006
    distributed_mode: int = 0,
    dc_asgd: bool = False,
    optimize_blocks: Blocks = [],  # noqa: B006
    prefetch_var_name_to_block_id: list[str] = [],  # noqa: B006
    sparse_grad_to_param: list[str] = [],  # noqa: B006
    Fanin: int = 1,  # noqa: N803
    checkpint_block_id: int = -1,
    lr_decay_block_id: int = -1,
    rpc_get_thread_num: int = 1,
    rpc_send_thread_num: int = 1,
    rpc_prefetch_thread_num: int = 1,
    ctx: Any,
):
    """Serve ``Fanin`` trainers: receive gradients, run the optimizer blocks on them, and serve parameters.

    Returns when all trainers have completed.
    """
    service("listen_and_serv")(ctx.runner.program, ctx.op, ctx.runner.outside, ctx.env)


@op(out="", kind="host", lod=None, absent="x")
def fl_listen_and_serv(
    x: list[Value],
    *,
    endpoint: str = _HOME[0],
    sync_mode: bool = True,
    Fanin: int = 1,  # noqa: N803
    optimize_blocks: Blocks = [],  # noqa: B006
    ctx: Any,
):
    """Serve ``Fanin`` trainers that send parameters instead of gradients, averaged by its blocks.

    A round starts in the receiving phase. Returns when all trainers have completed.
    """
    service("fl_listen_and_serv")(ctx.runner.program, ctx.op, ctx.runner.outside, ctx.env)
