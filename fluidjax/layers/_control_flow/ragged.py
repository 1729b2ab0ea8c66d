"""Rank tables, conversions between LoD tensors and arrays, and the split and merge ops used by IfElse and cond."""

from __future__ import annotations

from collections.abc import Sequence

from fluidjax import unique_name
from fluidjax.data_feeder import check_type, check_variable_and_dtype
from fluidjax.framework import Variable
from fluidjax.layer_helper import LayerHelper
from fluidjax.layers._control_flow.checks import VarType, require_variable

__all__ = ["reorder_lod_tensor_by_rank"]


def _require_table(table: Variable, layer: str) -> None:
    require_variable(table, "rank_table", layer)
    if table.type != VarType.LOD_RANK_TABLE:
        raise TypeError(
            f"{layer}: {table.name} is not a rank table. Expected a LOD_RANK_TABLE variable, received one of "
            f"type {table.type}. Make it with layers.control_flow.lod_rank_table."
        )


def lod_rank_table(x: Variable | list[Variable], level: int = 0) -> Variable:
    """The sequences of x at LoD ``level``, sorted by decreasing length; ties keep their original order.

    Args:
        x: a Variable, or a list of one.
        level: of the LoD.

    Returns:
        A LOD_RANK_TABLE Variable.
    """
    x = x[0] if isinstance(x, (list, tuple)) and len(x) == 1 else x
    require_variable(x, "x", "lod_rank_table")
    helper = LayerHelper("lod_rank_table")
    table = helper.create_variable(type=VarType.LOD_RANK_TABLE, name=unique_name.generate("lod_rank_table"))
    helper.append_op(type="lod_rank_table", inputs={"X": [x]}, outputs={"Out": [table]}, attrs={"level": level})
    return table


def max_sequence_len(rank_table: Variable) -> Variable:
    """The length of the longest sequence in a rank table, int64 of shape [1]."""
    # Fluid misspells its helper's name, and with it the variable's.
    helper = LayerHelper("max_seqence_len")
    out = helper.create_variable_for_type_inference(dtype="int64")
    helper.append_op(type="max_sequence_len", inputs={"RankTable": [rank_table]}, outputs={"Out": [out]})
    return out


def lod_tensor_to_array(x: Variable, table: Variable) -> Variable:
    """Array whose element t holds step t of every sequence long enough to have one, in rank-table order."""
    require_variable(x, "x", "lod_tensor_to_array")
    helper = LayerHelper("lod_tensor_to_array")
    array = helper.create_variable(
        name=unique_name.generate("lod_tensor_to_array"), type=VarType.LOD_TENSOR_ARRAY, dtype=x.dtype
    )
    helper.append_op(type="lod_tensor_to_array", inputs={"X": [x], "RankTable": [table]}, outputs={"Out": [array]})
    return array


def array_to_lod_tensor(x: Variable, table: Variable) -> Variable:
    """The inverse of `lod_tensor_to_array`: sequences in their original order, with their LoD."""
    require_variable(x, "x", "array_to_lod_tensor")
    helper = LayerHelper("array_to_lod_tensor")
    out = helper.create_variable_for_type_inference(dtype=x.dtype)
    helper.append_op(type="array_to_lod_tensor", inputs={"X": [x], "RankTable": [table]}, outputs={"Out": [out]})
    return out


def shrink_memory(x: Variable, i: Variable, table: Variable) -> Variable:
    """The leading rows (or sequences) of x still active at step i: those with length greater than i in the table."""
    helper = LayerHelper("shrink_memory")
    require_variable(x, "x", "shrink_memory")
    require_variable(i, "i", "shrink_memory")
    _require_table(table, "shrink_memory")
    out = helper.create_variable_for_type_inference(dtype=x.dtype)
    helper.append_op(
        type="shrink_rnn_memory",
        inputs={"X": [x], "I": [i], "RankTable": [table]},
        outputs={"Out": [out]},
    )
    return out


def reorder_lod_tensor_by_rank(x: Variable, rank_table: Variable) -> Variable:
    """Reorder the rows (or sequences) of x by a rank table.

    Args:
        x: Variable with as many rows, or sequences of its first LoD level, as the table has entries.
        rank_table: LOD_RANK_TABLE Variable.

    Returns:
        A Variable of x's dtype and LoD depth.

    Raises:
        TypeError: ``rank_table`` is not a rank table.
    """
    require_variable(x, "x", "reorder_lod_tensor_by_rank")
    _require_table(rank_table, "reorder_lod_tensor_by_rank")
    helper = LayerHelper("reorder_lod_tensor_by_rank")
    out = helper.create_variable_for_type_inference(dtype=x.dtype)
    helper.append_op(
        type="reorder_lod_tensor_by_rank",
        inputs={"X": [x], "RankTable": [rank_table]},
        outputs={"Out": [out]},
    )
    return out


def split_lod_tensor(input: Variable, mask: Variable, level: int = 0) -> tuple[Variable, Variable]:
    """The rows (or sequences of LoD ``level``) of ``input`` where ``mask`` is true, and those where it is false.

    Args:
        input: the Variable to split.
        mask: bool Variable [number of rows or sequences, 1].
        level: the LoD level the mask refers to.

    Returns:
        (true part, false part); either may be empty.
    """
    require_variable(input, "input", "split_lod_tensor")
    require_variable(mask, "mask", "split_lod_tensor")
    helper = LayerHelper("split_lod_tensor")
    out_true = helper.create_variable_for_type_inference(dtype=input.dtype)
    out_false = helper.create_variable_for_type_inference(dtype=input.dtype)
    helper.append_op(
        type="split_lod_tensor",
        inputs={"X": [input], "Mask": [mask]},
        outputs={"OutTrue": [out_true], "OutFalse": [out_false]},
        attrs={"level": level},
    )
    return out_true, out_false


def merge_lod_tensor(in_true: Variable, in_false: Variable, x: Variable, mask: Variable, level: int = 0) -> Variable:
    """The inverse of `split_lod_tensor`; x gives the LoD of the result."""
    for value, arg in ((in_true, "in_true"), (in_false, "in_false"), (x, "x"), (mask, "mask")):
        require_variable(value, arg, "merge_lod_tensor")
    helper = LayerHelper("merge_lod_tensor")
    out = helper.create_variable_for_type_inference(dtype=in_true.dtype)
    helper.append_op(
        type="merge_lod_tensor",
        inputs={"X": [x], "Mask": [mask], "InTrue": [in_true], "InFalse": [in_false]},
        outputs={"Out": [out]},
        attrs={"level": level},
    )
    return out


def select_output(input: Variable, outputs: Sequence[Variable], mask: Variable) -> Sequence[Variable]:
    """``outputs[mask] = input``; the other outputs are left unset. mask is int32 of shape [1].

    Raises TypeError if input or mask is not a Variable, mask not int32, or outputs not a list.
    """
    check_type(input, "input", Variable, "select_output")
    check_variable_and_dtype(mask, "mask", ("int32",), "select_output")
    check_type(outputs, "outputs", (list, tuple), "select_output")
    helper = LayerHelper("select_output")
    helper.append_op(type="select_output", inputs={"X": [input], "Mask": [mask]}, outputs={"Out": list(outputs)})
    return outputs


def select_input(inputs: Sequence[Variable], mask: Variable) -> Variable:
    """``out = inputs[mask]``; mask is int32 of shape [1].

    Raises TypeError if inputs is not a list, or mask not an int32 Variable.
    """
    helper = LayerHelper("select_input")
    check_type(inputs, "inputs", (list, tuple), "select_input")
    check_variable_and_dtype(mask, "mask", ("int32",), "select_input")
    out = helper.create_variable(dtype=inputs[0].dtype, shape=inputs[0].shape)
    helper.append_op(type="select_input", inputs={"X": list(inputs), "Mask": [mask]}, outputs={"Out": [out]})
    return out
