"""Contrib layers on pairs of variable-length sequences, and on trees."""

from __future__ import annotations

from typing import Any

from fluidjax.framework import Variable
from fluidjax.layer_helper import LayerHelper
from fluidjax.layers._sequence.checks import pair, variable
from fluidjax.writing.checks import FULL_FLOATS

__all__ = [
    "fused_embedding_seq_pool",
    "match_matrix_tensor",
    "sequence_topk_avg_pooling",
    "tree_conv",
    "var_conv_2d",
]


def fused_embedding_seq_pool(
    input: Variable,
    size: list[int],
    is_sparse: bool = False,
    padding_idx: int | None = None,
    combiner: str = "sum",
    param_attr: Any = None,
    dtype: Any = "float32",
) -> Variable:
    """Embed the ids of each sequence and sum the embeddings.

    Args:
        input: int64 ids [rows, 1] with LoD.
        size: [rows of the table, width].
        is_sparse: give the table a sparse gradient.
        padding_idx: an id that maps to zeros; a negative value counts from the end of the table.
        combiner: only sum is supported.

    Returns:
        [sequences, width].
    """
    helper = LayerHelper("fused_embedding_seq_pool", **_given(locals()))
    table = helper.create_parameter(attr=helper.param_attr, shape=size, dtype=dtype, is_bias=False)
    out = helper.create_variable_for_type_inference(dtype)
    if padding_idx is None:
        padding_idx = -1
    elif padding_idx < 0:
        padding_idx += size[0]
    helper.append_op(
        type="fused_embedding_seq_pool",
        inputs={"Ids": input, "W": table},
        outputs={"Out": out},
        attrs={"is_sparse": is_sparse, "combiner": combiner, "padding_idx": padding_idx},
    )
    return out


def match_matrix_tensor(
    x: Variable,
    y: Variable,
    channel_num: int,
    act: str | None = None,
    param_attr: Any = None,
    dtype: Any = "float32",
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """act(x_r W_t y_c) for all rows r of x and c of y in a pair of sequences, and t < ``channel_num``; flattened.

    Args:
        x, y: [rows, width] with LoD, with the same number of sequences.
        channel_num: number of matrices.

    Returns:
        ([sum of channel_num * rows of x * rows of y, 1] with LoD, the product x W).
    """
    variable(x, "x", "match_matrix_tensor", FULL_FLOATS)
    variable(y, "y", "match_matrix_tensor", FULL_FLOATS)
    helper = LayerHelper("match_matrix_tensor", **_given(locals()))
    shape = [x.shape[-1], channel_num, y.shape[-1]]
    weight = helper.create_parameter(attr=helper.param_attr, shape=shape, dtype=dtype, is_bias=False)
    out = helper.create_variable_for_type_inference(dtype)
    product = helper.create_variable_for_type_inference(dtype, stop_gradient=True)
    helper.append_op(
        type="match_matrix_tensor",
        inputs={"X": x, "Y": y, "W": weight},
        outputs={"Out": out, "Tmp": product},
        attrs={"dim_t": channel_num},
    )
    return helper.append_activation(out), product


def sequence_topk_avg_pooling(
    input: Variable, row: Variable, col: Variable, topks: list[int], channel_num: int
) -> Variable:
    """For each row and channel of the flattened matrices in ``input``, means of the k largest values, k in ``topks``.

    Args:
        input: the result of ``match_matrix_tensor`` or ``var_conv_2d``.
        row, col: supply the sizes of the matrices through their LoD.

    Returns:
        [rows, channel_num * len(topks)] with the LoD of ``row``.
    """
    helper = LayerHelper("sequence_topk_avg_pooling", **_given(locals()))
    out = helper.create_variable_for_type_inference(dtype=helper.input_dtype())
    pos = helper.create_variable_for_type_inference(dtype=helper.input_dtype(), stop_gradient=True)
    helper.append_op(
        type="sequence_topk_avg_pooling",
        inputs={"X": input, "ROW": row, "COLUMN": col},
        outputs={"Out": out, "pos": pos},
        attrs={"topks": topks, "channel_num": channel_num},
    )
    return out


def tree_conv(
    nodes_vector: Variable,
    edge_set: Variable,
    output_size: int,
    num_filters: int = 1,
    max_depth: int = 2,
    act: str | None = "tanh",
    param_attr: Any = None,
    bias_attr: Any = None,
    name: str | None = None,
) -> Variable:
    """Tree-based convolution: each window is a node with its descendants to depth ``max_depth`` - 1.

    Args:
        nodes_vector: [trees, nodes, width].
        edge_set: int32 [trees, edges, 2], (parent, child) pairs of 1-based node numbers, padded with zeros.
        output_size: width of the result.

    Returns:
        [trees, nodes, output_size, num_filters].
    """
    variable(nodes_vector, "nodes_vector", "tree_conv", FULL_FLOATS)
    variable(edge_set, "edge_set", "tree_conv")
    helper = LayerHelper("tree_conv", **_given(locals()))
    dtype = helper.input_dtype("nodes_vector")
    shape = [nodes_vector.shape[2], 3, output_size, num_filters]
    weight = helper.create_parameter(attr=helper.param_attr, shape=shape, dtype=dtype, is_bias=False)
    out = helper.create_variable_for_type_inference(dtype=dtype)
    helper.append_op(
        type="tree_conv",
        inputs={"NodesVector": nodes_vector, "EdgeSet": edge_set, "Filter": weight},
        outputs={"Out": out},
        attrs={"max_depth": max_depth},
    )
    return helper.append_activation(helper.append_bias_op(out) if helper.bias_attr else out)


def var_conv_2d(
    input: Variable,
    row: Variable,
    col: Variable,
    input_channel: int,
    output_channel: int,
    filter_size: Any,
    stride: Any = 1,
    param_attr: Any = None,
    act: str | None = None,
    dtype: Any = "float32",
    name: str | None = None,
) -> Variable:
    """Convolution with centred windows of flattened images [input_channel, rows, cols] of different sizes.

    Args:
        input: flattened images with LoD.
        row, col: supply the sizes of the images through their LoD.
        filter_size, stride: an int, or [height, width].

    Returns:
        Flattened images [output_channel, ...] with LoD.
    """
    helper = LayerHelper("var_conv_2d", **_given(locals()))
    kernel, step = pair(filter_size), pair(stride)
    shape = [output_channel, input_channel * kernel[0] * kernel[1]]
    weight = helper.create_parameter(attr=helper.param_attr, shape=shape, dtype=dtype)
    out = helper.create_variable_for_type_inference(dtype)
    patches = helper.create_variable_for_type_inference(dtype, stop_gradient=True)
    helper.append_op(
        type="var_conv_2d",
        inputs={"X": input, "ROW": row, "COLUMN": col, "W": weight},
        outputs={"Out": out, "Col": patches},
        attrs={
            "InputChannel": input_channel,
            "OutputChannel": output_channel,
            "StrideH": step[0],
            "StrideW": step[1],
            "KernelH": kernel[0],
            "KernelW": kernel[1],
        },
    )
    return helper.append_activation(out)


def _given(arguments: dict[str, Any]) -> dict[str, Any]:
    """A layer's arguments, for its helper."""
    return dict(arguments)
