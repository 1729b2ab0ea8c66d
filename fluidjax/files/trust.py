"""Loaded programs are data, until they are run: ops that act on the host then wait for the user's word.

A program that came from a file may write files, open sockets or call Python functions. ``check`` refuses to run
such a one; ``allow_host_ops`` gives it leave. Who runs a script that stays as it is gives leave to all programs that it
loads, by types of ops: ``FLAGS_allow_host_ops=send,recv``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fluidjax.base.errors import ArgumentError, explain
from fluidjax.base.flags import FLAGS
from fluidjax.files.errors import UntrustedProgramError

HOST_EFFECTS = {
    "py_func": "calls a Python function",
    "py_layer": "calls a Python function",
    "py_layer_grad": "calls a Python function",
    "save": "writes a file",
    "save_combine": "writes a file",
    "load": "reads a file",
    "load_combine": "reads a file",
    "send": "sends to another machine",
    "recv": "receives from another machine",
    "recv_save": "receives from another machine and writes a file",
    "send_barrier": "talks to another machine",
    "fetch_barrier": "talks to another machine",
    "prefetch": "receives from another machine",
    "distributed_lookup_table": "receives from another machine",
    "checkpoint_notify": "makes another machine write files",
    "listen_and_serv": "listens for connections",
    "fl_listen_and_serv": "listens for connections",
    "gen_nccl_id": "listens for connections",
    "c_gen_nccl_id": "listens for connections",
    "pull_sparse": "receives from another machine",
    "pull_sparse_v2": "receives from another machine",
    "pull_box_sparse": "receives from another machine",
    "push_dense": "sends to another machine",
}


_CALLS = frozenset(("py_func", "py_layer", "py_layer_grad"))


def mark_loaded(program: Any, source: str) -> None:
    """Note that a program came from outside; its copies inherit that."""
    program._loaded_from = source


def allow_host_ops(program: Any, op_types: Iterable[str] | None = None) -> None:
    """Let a loaded program act on the host when it runs.

    Args:
        program: a loaded Program, or a copy of one.
        op_types: the op types to allow, for example ``["save"]``; by default all that it holds.
    """
    held = {op.type for block in program.blocks for op in block.ops} & set(HOST_EFFECTS)
    program._allowed_host_ops = frozenset(getattr(program, "_allowed_host_ops", ())) | (
        held if op_types is None else frozenset(op_types)
    )


def host_ops(program: Any) -> list[tuple[int, int, str]]:
    """(block, index, type) of each op that acts on the host and is not allowed to, in a loaded program."""
    if not getattr(program, "_loaded_from", None):
        return []
    allowed: frozenset[str] = getattr(program, "_allowed_host_ops", frozenset()) | _of_the_flag()
    return [
        (block.idx, index, op.type)
        for block in program.blocks
        for index, op in enumerate(block.ops)
        if op.type in HOST_EFFECTS and op.type not in allowed and not _bound(op, allowed)
    ]


def _of_the_flag() -> frozenset[str]:
    """The types of ops in FLAGS_allow_host_ops. Raises ArgumentError for one that is no such type."""
    types = frozenset(filter(None, (each.strip() for each in FLAGS["FLAGS_allow_host_ops"].split(","))))
    if types.issubset(HOST_EFFECTS):
        return types
    raise ArgumentError(
        explain(
            "FLAGS_allow_host_ops holds types that are no ops that act on the host",
            f"some of {', '.join(HOST_EFFECTS)}, with commas between",
            ", ".join(sorted(types - set(HOST_EFFECTS))),
            "correct the flag",
        )
    )


def _bound(op: Any, allowed: frozenset[str]) -> bool:
    """Whether it calls a function that the user gave it (``fluid.io.bind_py_func``, ``bind_py_layer``)."""
    return op.type in _CALLS and binding(op) in allowed


def binding(op: Any) -> str:
    """What permission to run one of these refers to: its function and outputs, as another may have the same number."""
    return f"{op.type} {op.attr('forward_callable_id')} -> {', '.join(op.output_arg_names)}"


def check(program: Any) -> None:
    """UntrustedProgramError when a loaded program would act on the host without leave. Call it before running."""
    found = host_ops(program)
    if not found:
        return
    listed = "; ".join(f"op {i} of block {b}, {t}, {HOST_EFFECTS[t]}" for b, i, t in found[:5])
    types = sorted({kind for _, _, kind in found})
    raise UntrustedProgramError(
        explain(
            f"the program loaded from {program._loaded_from} wants to act on this machine",
            "a loaded program that only computes, or your leave",
            listed,
            f"if you trust its author: fluid.io.allow_host_ops(program, {types}), or start the script with "
            f"FLAGS_allow_host_ops={','.join(types)}; otherwise do not run it",
        )
    )
