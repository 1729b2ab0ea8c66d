"""Optimizer state kept beside parameters, and which of it is split like the parameters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fluidjax.base.errors import explain
from fluidjax.framework import Operator
from fluidjax.transpiler.details import VarDistributed, VarsDistributed, VarStruct
from fluidjax.transpiler.job import Job
from fluidjax.transpiler.roles import is_update

_CUT = {
    "adam": ("Moment1", "Moment2"),
    "adagrad": ("Moment",),
    "adamax": ("Moment", "InfNorm"),
    "momentum": ("Velocity",),
    "lars_momentum": ("Velocity",),
    "rmsprop": ("Moment", "MeanSquare"),
    "decayed_adagrad": ("Moment",),
    "ftrl": ("SquaredAccumulator", "LinearAccumulator"),
    "sgd": (),
    "dpsgd": (),
}
_NO_STATE = ("Param", "Grad", "LearningRate", "Beta1Tensor", "Beta2Tensor")


def state_slots(op: Operator) -> list[str]:
    """The input slots of an update that hold its state."""
    return [slot for slot in op.input_names if slot not in _NO_STATE]


def check_optimizers(ops: Iterable[Operator]) -> None:
    """Raise ValueError for an optimizer that servers do not support."""
    for op in ops:
        if "Param" in op.input_names and op.type not in _CUT:
            raise ValueError(
                explain(
                    f"Not supported optimizer for distributed training: {op.type}",
                    "one of " + ", ".join(_CUT),
                    op.type,
                    "train with one of these, or in a collective mode",
                )
            )


def state_shape(op: Operator, slot: str, whole: Sequence[int], param: Sequence[int]) -> Sequence[int]:
    """The shape of optimizer state on a server that has a block of shape ``param`` of its parameter."""
    # MeanGrad is always an input, and is split like the parameter where it is used.
    cut = slot in _CUT[op.type] or (slot == "MeanGrad" and op.attr("centered"))
    return param if cut else whole


def add_states(job: Job, overview: VarsDistributed) -> None:
    """Record the state of each block of a parameter, with the server that keeps it."""
    for endpoint in job.endpoints:
        for op in filter(is_update, job.optimizing):
            part = overview.get_distributed_var_by_origin_and_ep(op.input("Param")[0], endpoint)
            if part is None:
                continue
            for slot in state_slots(op):
                _add_state(job, overview, op, slot, part)


def _add_state(job: Job, overview: VarsDistributed, op: Operator, slot: str, part: VarDistributed) -> None:
    whole = job.main.global_block().var(op.input(slot)[0])
    shape = state_shape(op, slot, whole.shape, part.slice.shape)
    settings: dict[str, Any] = {"origin_var": whole, "vtype": "Optimizer", "endpoint": part.endpoint}
    if tuple(shape) == tuple(part.slice.shape):
        own = VarStruct(whole.name, shape, whole.dtype, whole.type, whole.lod_level, whole.persistable)
        overview.add_distributed_var(
            **settings, slice_var=own, is_slice=part.is_slice, block_id=part.block_id, offset=part.offset
        )
    else:
        overview.add_distributed_var(**settings, slice_var=whole, is_slice=False, block_id=0, offset=0)
