"""Feeds whose data type differs from their variable's declared one: Fluid 1.8 accepts them as they are.

Its kernels then compute in the type they find: an op returns results of that type, refuses if it also receives the
declared type, and refuses if it has no kernels for integers. The same happens here; if all feeds are as declared
(which is mandatory for variables of ``fluid.data``), nothing is inspected.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Any

import jax.numpy as jnp
import numpy as np

from lowering.dtypes import LOD_TENSOR, to_numpy
from lowering.errors import OpError
from lowering.program import EMPTY, OpView, ProgramView
from lowering.registry import get_op
from lowering.values import data_of

# The ops with integer kernels in Paddle 1.8.5, among those that also compute with floating-point numbers.
INTEGERS = frozenset(
    """
    abs allreduce arg_max arg_min argsort assign beam_search broadcast cast coalesce_tensor concat crop_tensor cross
    ctc_align cumsum diag diag_embed dot elementwise_add elementwise_div elementwise_max elementwise_min elementwise_mod
    elementwise_floordiv elementwise_mul elementwise_pow elementwise_sub equal exp expand expand_as fetch fill_any_like
    fill_constant_batch_size_like fill_zeros_like fill_zeros_like2 filter_by_instag flatten flatten2 flip gather
    gather_nd greater_equal greater_than hash increment index_sample index_select is_empty isfinite isinf isnan kron
    less_equal less_than lod_reset mean_iou meshgrid multiplex not_equal one_hot one_hot_v2 pad pad2d pad_constant_like
    partial_concat partial_sum pow print random_crop reduce_max reduce_mean reduce_min reduce_prod reduce_sum reshape
    reshape2 reverse roll scale scatter scatter_nd_add sequence_concat sequence_enumerate sequence_erase sequence_expand
    sequence_expand_as sequence_mask sequence_pad sequence_reshape sequence_reverse sequence_scatter sequence_slice
    sequence_unpad shape size slice space_to_depth split square squeeze squeeze2 stack strided_slice sum transpose
    transpose2 trace tril_triu unbind unique unique_with_counts unsqueeze unsqueeze2 unstack where where_index
    """.split()
)


# Slots in which kernels look for integers, however the variable is declared; gradients have them, too.
_INDICES = {
    **dict.fromkeys(("accuracy", "bpr_loss", "center_loss", "softmax_with_cross_entropy"), "Label"),
    **dict.fromkeys(("cross_entropy", "cross_entropy2", "cross_entropy_grad2"), "Label"),
    **dict.fromkeys(("gather", "gather_nd", "index_sample", "index_select", "scatter_nd_add"), "Index"),
    **{"scatter": "Ids", "lod_reset": "Y"},
}
# Slots of sizes, axes and counts, whose names mean this in every op that has them.
_COUNTS = frozenset(
    """
    AxesTensor AxesTensorList AxisTensor EndsTensor EndsTensorList ExpandTimes K MaxLenTensor Offsets OffsetsTensor
    OutputShape OutSize Paddings SectionsTensorList Shape ShapeTensor ShapeTensorList SizeTensor StartsTensor
    StartsTensorList StridesTensor StridesTensorList depth_tensor expand_times_tensor
    """.split()
)


def strangers(program: ProgramView, env: Mapping[str, Any]) -> set[str]:
    """The values fed with a data type other than their variable's."""
    found = {name for name, value in env.items() if _is_strange(program, 0, name, value)}
    if found:
        found -= {name for op in program.blocks[0].ops for name in op.output_names()}
    return found


def suspects(program: ProgramView, names: Iterable[str]) -> dict[str, np.dtype]:
    """Those variables whose values may be ``strangers``, and their data types; others never are, in any run."""
    fed = set(names).difference(name for op in program.blocks[0].ops for name in op.output_names())
    found = {name: _checked(program, 0, name) for name in fed}
    return {name: declared for name, declared in found.items() if declared is not None}


def is_strange(value: Any, declared: np.dtype) -> bool:
    """Whether a value has a data type other than the ``declared`` one; integers of any size are alike."""
    held = _dtype(value)
    return held != declared and held.kind != "O" and not {held.kind, declared.kind} <= set("iu")


def check(program: ProgramView, op: OpView, env: Mapping[str, Any], strange: set[str]) -> None:
    """Refuse an op as its kernels would, by OpError."""
    definition = get_op(op.type)
    if definition.kind in ("block", "host") or strange.isdisjoint(op.input_names()):
        return
    wanted = {slot.name for slot in definition.inputs if slot.wants != "meta"} - indices(op)
    names = [n for slot, bound in op.inputs.items() if slot in wanted for n in bound if n != EMPTY and n in env]
    for name in strange.intersection(names):
        held, declared = _dtype(env[name]), _declared(program, op.block_idx, name)
        if held.kind in "iub" and not _takes_integers(op.type):
            raise OpError(_message(op, f"has no kernel for {held}", name, held, declared))
        for other in names:
            if _declared(program, op.block_idx, other) == declared and _dtype(env[other]) != held:
                raise OpError(
                    _message(op, f"holds the wrong type: {other!r} is {_dtype(env[other])}", name, held, declared)
                )


def indices(op: OpView) -> Set[str]:
    """The input slots of numbers of classes or rows, and of sizes."""
    slot = None if op.attrs.get("soft_label") else _INDICES.get(op.type.removesuffix("_grad"))
    counts = _COUNTS.intersection(op.inputs)
    return counts | {slot} if slot else counts


def note(
    program: ProgramView, op: OpView, env: Mapping[str, Any], results: Mapping[str, Any], strange: set[str]
) -> None:
    """Keep track of the values that have the data type of a feed in place of their variables'.

    An index that a kernel leaves to its gradient is declared as Fluid declares it, by no feed's doing: like the op's X.
    """
    held = {_dtype(env[name]) for name in strange.intersection(op.input_names()) if name in env}
    for name, value in results.items():
        due = _dtype(value) in held and _is_strange(program, op.block_idx, name, value)
        (strange.add if due else strange.discard)(name)


def in_kernel_type(
    program: ProgramView, op: OpView, env: Mapping[str, Any], results: Mapping[str, Any], strange: Iterable[str]
) -> dict[str, Any]:
    """Convert results declared like such values to the type that these values have.

    An op with an explicit result type keeps it.
    """
    if any(op.attrs.get(name, -1) != -1 for name in ("dtype", "out_dtype")):
        return dict(results)
    deciding = [n for slot, names in op.inputs.items() if slot not in indices(op) for n in names if n in strange]
    held = {_declared(program, op.block_idx, name): _dtype(env[name]) for name in deciding}
    found = dict(results)
    for name, value in results.items():
        wanted = held.get(_declared(program, op.block_idx, name))
        if wanted is not None and isinstance(value, (jnp.ndarray, np.ndarray)) and value.dtype != wanted:
            found[name] = value.astype(wanted)
    return found


def _takes_integers(type: str) -> bool:
    return type.removesuffix("_grad") in INTEGERS


def _dtype(value: Any) -> np.dtype:
    return np.dtype(getattr(data_of(value), "dtype", object))


def _declared(program: ProgramView, block: int, name: str) -> np.dtype | None:
    var = program.find_var(block, name)
    return None if var is None or var.type != LOD_TENSOR else to_numpy(var.dtype)


def _is_strange(program: ProgramView, block: int, name: str, value: Any) -> bool:
    declared = _checked(program, block, name)
    return declared is not None and is_strange(value, declared)


def _checked(program: ProgramView, block: int, name: str) -> np.dtype | None:
    """The declared data type of a variable that may be fed another one; None if it may not."""
    var = program.find_var(block, name)
    if var is None or var.persistable or var.need_check_feed or var.type != LOD_TENSOR:
        return None
    return to_numpy(var.dtype)


def _message(op: OpView, what: str, name: str, held: np.dtype, declared: np.dtype | None) -> str:
    line = op.user_line()
    return (f"{op.label} {what}." + (f"\n  built at: {line.strip()}" if line else "")) + (
        f"\n  expected: {name!r} as {declared}, as it is declared\n  received: {held}, as it was fed or computed from a"
        f" feed\n  to do: feed array.astype({str(declared)!r})"
    )
