"""Mode nccl2: the startup program connects the workers; the main program is unchanged, data-parallel runs reduce."""

from __future__ import annotations

from typing import Any

from fluidjax.base.enums import VarType
from fluidjax.base.places import cuda_places
from fluidjax.framework import Program
from fluidjax.transpiler.config import DistributeTranspilerConfig
from fluidjax.transpiler.details import wait_server_ready


def transpile_nccl2(
    config: DistributeTranspilerConfig, main: Program, startup: Program, rank: int, trainers: Any, endpoint: str
) -> None:
    """Record the workers in the main program, and make the startup program exchange an id among them."""
    assert isinstance(trainers, str), f"trainers {trainers!r}: expected endpoints, 'host:port,host:port'. Pass a str."
    if rank < 0:
        raise ValueError(f"must set trainer_id > 0: expected the number of this worker, got {rank}.")
    endpoints = trainers.split(",")
    main._trainers_endpoints = endpoints
    main._nccl_comm_num = config.nccl_comm_num
    main._use_hierarchical_allreduce = config.use_hierarchical_allreduce
    if config.use_hierarchical_allreduce:
        main._hierarchical_allreduce_inter_nranks = _ranks_per_node(config, len(endpoints))
    others = [other for other in endpoints if other != endpoint]
    if len(others) == len(endpoints):
        raise ValueError(f"current_endpoint {endpoint} is not in {trainers}. Expected one of these; list it.")
    if rank == 0 and config.wait_port:
        wait_server_ready(others)
    _write_ids(config, startup, endpoints, rank)


def _ranks_per_node(config: DistributeTranspilerConfig, count: int) -> int:
    if config.hierarchical_allreduce_inter_nranks <= 1:
        config.hierarchical_allreduce_inter_nranks = len(cuda_places())
    ranks = int(config.hierarchical_allreduce_inter_nranks)
    assert count > ranks, f"trainers_num:{count} < hierarchical_allreduce_inter_nranks:{ranks}; expected several nodes"
    assert count % ranks == 0, (
        f"trainers_num:{count} mod hierarchical_allreduce_inter_nranks:{ranks} != 0; expected as many on each node"
    )
    return ranks


def _write_ids(config: DistributeTranspilerConfig, startup: Program, endpoints: list[str], rank: int) -> None:
    block, rings = startup.global_block(), range(config.nccl_comm_num)
    names = ["NCCLID" if ring == 0 else f"NCCLID_{ring}" for ring in rings]
    if config.use_hierarchical_allreduce:
        names += [f"Hierarchical_{kind}_NCCLID_{ring}" for ring in rings for kind in ("inter", "exter")]
    ids = [block.create_var(name=name, persistable=True, type=VarType.RAW) for name in names]
    block.append_op(
        type="gen_nccl_id",
        inputs={},
        outputs={"NCCLID": ids[0]},
        attrs={
            "trainers": endpoints,
            "trainer_id": rank,
            "nccl_comm_num": config.nccl_comm_num,
            "use_hierarchical_allreduce": int(config.use_hierarchical_allreduce),
            "hierarchical_allreduce_inter_nranks": config.hierarchical_allreduce_inter_nranks,
        },
    )
