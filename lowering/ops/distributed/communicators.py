"""Set-up of communication: ids of groups, and the groups (rings) created from them."""

from __future__ import annotations

from typing import Any

from lowering.engine.host import service
from lowering.errors import OpError
from lowering.registry import Value, op


@op(out="NCCLID", slots={"nccl_id": "NCCLID"}, kind="host", lod=None)
def gen_nccl_id(
    *,
    trainers: list[str] = [],  # noqa: B006
    trainer_id: int,
    nccl_comm_num: int = 1,
    use_hierarchical_allreduce: int = 0,
    hierarchical_allreduce_inter_nranks: int = -1,
    ctx: Any,
):
    """NCCLID = an id created by trainer 0 and sent to the other ``trainers``."""
    return service("group")()


@op(kind="host", lod=None)
def c_gen_nccl_id(
    *,
    endpoint: str,
    other_endpoints: list[str],
    rank: int,
    ctx: Any,
):
    """Out = an id created by rank 0 and sent to the ``other_endpoints``."""
    return service("group")()


@op(out="", kind="host", lod=None)
def c_comm_init(x: Value, *, nranks: int, rank: int, ring_id: int = 0, ctx: Any):
    """Make this process rank ``rank`` of ``nranks`` in the ring identified by X.

    All rings contain all processes, which ``fluidjax.execution.devices.processes`` joins before the program runs.
    """
    members = service("members")()
    if nranks != members:
        raise OpError(
            f"op c_comm_init (#{ctx.op.index}) makes a ring of {nranks} processes: expected as many as there are in the"
            f" job, received a job of {members}; run it in each process, with the same endpoints"
        )


@op(out="", kind="host", lod=None)
def c_comm_init_all(*, devices: list[int] = [], ring_id: int = 0):  # noqa: B006
    """Join the devices of this process to a ring: a no-op, as XLA's collectives know the mesh they run on."""
