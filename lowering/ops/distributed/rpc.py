"""What trainers and parameter servers say to each other. Programs hold these ops; running them needs a cluster."""

from __future__ import annotations

from typing import Any, NoReturn

from lowering.errors import OpError
from lowering.registry import Blocks, Longs, Value, op

_HOME = ["127.0.0.1:6164"]


def needs_cluster(ctx: Any) -> NoReturn:
    """Refuses to run the op that asks."""
    raise OpError(
        f"op {ctx.op.type} (#{ctx.op.index} of block {ctx.op.block_idx}) talks to other processes, which is not built"
        " yet\n  expected: a program that runs in one process\n  received: one that a transpiler made for a cluster\n"
        "  what to do: run the program that was given to transpile()"
    )


@op(out="Out*", kind="host", lod=None)
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
    """Sends each X to its endpoint of ``epmap``; with ``send_varnames``, the communicator splits and sends later."""
    needs_cluster(ctx)


@op(out="Out*", kind="host", lod=None)
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
    """Out = what the endpoints of ``epmap`` hold, under the names of Out, or in parts under ``recv_varnames``."""
    needs_cluster(ctx)


@op(out="Out*", kind="host", lod=None)
def send_barrier(
    x: list[Value], *, trainer_id: int = 0, endpoints: list[str] = _HOME, half_async: bool = False, ctx: Any
):
    """Tells the endpoints that this trainer has sent all of its gradients."""
    needs_cluster(ctx)


@op(out="Out*", kind="host", lod=None)
def fetch_barrier(x: list[Value] = (), *, trainer_id: int = 0, endpoints: list[str] = _HOME, ctx: Any):
    """Tells the endpoints that this trainer has received all of its parameters."""
    needs_cluster(ctx)


@op(out="Out*", kind="host", lod=None)
def prefetch(x: list[Value], *, trainer_id: int = 0, epmap: list[str] = _HOME, ctx: Any):
    """Out = for each X, ids, the rows that its endpoint looks up."""
    needs_cluster(ctx)


@op(out="", kind="host", lod=None)
def checkpoint_notify(
    *,
    epmap: list[str] = _HOME,
    dir: str,
    lookup_table: str,
    trainer_id: int = 0,
    ctx: Any,
):
    """Tells the endpoints to save their part of ``lookup_table`` below ``dir``."""
    needs_cluster(ctx)


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
    """Writes one file of ``shape`` from the parts that the endpoints hold, one after another."""
    needs_cluster(ctx)


@op(out="", kind="host", lod=None)
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
    """Serves ``Fanin`` trainers: receives gradients, runs the blocks that optimize by them, hands out parameters."""
    needs_cluster(ctx)


@op(out="", kind="host", lod=None)
def fl_listen_and_serv(
    x: list[Value],
    *,
    endpoint: str = _HOME[0],
    sync_mode: bool = True,
    Fanin: int = 1,  # noqa: N803
    optimize_blocks: Blocks = [],  # noqa: B006
    ctx: Any,
):
    """Serves ``Fanin`` trainers that send parameters instead of gradients."""
    needs_cluster(ctx)
