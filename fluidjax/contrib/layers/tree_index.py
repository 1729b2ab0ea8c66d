"""Contrib layers on the index tree of tree-based deep models (TDM)."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from fluidjax.framework import Variable, convert_np_dtype_to_dtype_
from fluidjax.initializer import Constant
from fluidjax.layer_helper import LayerHelper
from fluidjax.layers import reshape, slice
from fluidjax.writing.checks import INTS, check_dtype

__all__ = ["tdm_child", "tdm_sampler"]

_INTS = INTS
Found = Variable | list[Variable]


def tdm_child(
    x: Variable, node_nums: int, child_nums: int, param_attr: Any = None, dtype: Any = "int32"
) -> tuple[Variable, Variable]:
    """The children of nodes, and which of them are leaves.

    Args:
        x: node ids, int32 or int64 [N, 1].
        node_nums: number of nodes, including the empty node 0.
        child_nums: maximum number of children of a node.
        param_attr: attributes of the tree, int [node_nums, 3 + child_nums] with rows (item, layer, parent, children);
            zeros unless initialised.
        dtype: of the results, int32 or int64.

    Returns:
        (children [N, 1, child_nums]; 1 where a child is a leaf, same shape).
    """
    helper = LayerHelper("tdm_child", param_attr=param_attr)
    check_dtype(dtype, "dtype", _INTS, "fluid.contrib.layers.tdm_child")
    tree = helper.create_parameter(
        attr=helper.param_attr, shape=[node_nums, 3 + child_nums], dtype=dtype, default_initializer=Constant(0)
    )
    assert tree is not None
    tree.stop_gradient = True
    child = helper.create_variable_for_type_inference(dtype=dtype)
    leaf = helper.create_variable_for_type_inference(dtype=dtype)
    helper.append_op(
        type="tdm_child",
        inputs={"X": x, "TreeInfo": tree},
        outputs={"Child": child, "LeafMask": leaf},
        attrs={"child_nums": child_nums, "dtype": convert_np_dtype_to_dtype_(dtype)},
        stop_gradient=True,
    )
    return child, leaf


def tdm_sampler(
    x: Variable,
    neg_samples_num_list: list[int],
    layer_node_num_list: list[int],
    leaf_node_num: int,
    tree_travel_attr: Any = None,
    tree_layer_attr: Any = None,
    output_positive: bool = True,
    output_list: bool = True,
    seed: int = 0,
    tree_dtype: Any = "int32",
    dtype: Any = "int32",
) -> tuple[Found, Found, Found]:
    """For each item, its ancestor in each layer of the tree and random other nodes of the same layer.

    Args:
        x: leaf numbers, int32 or int64 [N, 1].
        neg_samples_num_list: number of other nodes per layer.
        layer_node_num_list: number of nodes per layer.
        leaf_node_num: number of leaves.
        tree_travel_attr: attributes of the ancestors, int [leaf_node_num, layers].
        tree_layer_attr: attributes of the nodes by layer, int [nodes, 1].
        output_positive: also return the ancestors.
        output_list: return lists with one [N, samples, 1] per layer rather than a single [N, samples of all layers, 1].
        seed: of the sampler.
        tree_dtype, dtype: int32 or int64, of the tree and of the results.

    Returns:
        (nodes; 1 for ancestors and 0 for others; a mask that is 0 for padding of short paths).

    Raises:
        ValueError: lists of different lengths, a layer with too few nodes, or too many leaves.
    """
    helper = LayerHelper("tdm_sampler")
    for arg, value in (("tree_dtype", tree_dtype), ("dtype", dtype)):
        check_dtype(value, arg, _INTS, "fluid.contrib.layers.tdm_sampler")
    _check_layers(neg_samples_num_list, layer_node_num_list, leaf_node_num)
    offsets = list(accumulate(layer_node_num_list, initial=0))
    shapes = [leaf_node_num, len(layer_node_num_list)], [offsets[-1], 1]
    travel, layer = (
        helper.create_parameter(attr=attr, shape=shape, dtype=tree_dtype, default_initializer=Constant(0))
        for attr, shape in zip((tree_travel_attr, tree_layer_attr), shapes, strict=True)
    )
    found = [helper.create_variable_for_type_inference(dtype=dtype, stop_gradient=True) for _ in range(3)]
    helper.append_op(
        type="tdm_sampler",
        inputs={"X": x, "Travel": travel, "Layer": layer},
        outputs=dict(zip(("Out", "Labels", "Mask"), ([v] for v in found), strict=True)),
        attrs={
            "neg_samples_num_list": neg_samples_num_list,
            "output_positive": output_positive,
            "layer_offset_lod": offsets,
            "seed": seed,
            "dtype": convert_np_dtype_to_dtype_(dtype),
        },
    )
    if not output_list:
        return found[0], found[1], found[2]
    sizes = [count + int(bool(output_positive)) for count in neg_samples_num_list]
    return _by_layer(found, sizes)


def _check_layers(samples: list[int], nodes: list[int], leaves: int) -> None:
    if len(samples) != len(nodes):
        raise ValueError(
            f"tdm_sampler: neg_samples_num_list has {len(samples)} layers and layer_node_num_list {len(nodes)}. Give"
            " both one number for each layer of the tree."
        )
    for index, (wanted, there) in enumerate(zip(samples, nodes, strict=True)):
        if wanted >= there:
            raise ValueError(
                f"tdm_sampler: layer {index} has {there} nodes, of which {wanted} other than the ancestor were asked"
                " for. Lower neg_samples_num_list there."
            )
    if leaves >= sum(nodes):
        raise ValueError(
            f"tdm_sampler: leaf_node_num must be less than the number of nodes {sum(nodes)}, received {leaves}."
            " Check layer_node_num_list."
        )


def _by_layer(found: list[Variable], sizes: list[int]) -> tuple[list[Variable], list[Variable], list[Variable]]:
    """Split the three results by layer, appending the ops layer by layer as Fluid does."""
    parts: tuple[list[Variable], list[Variable], list[Variable]] = ([], [], [])
    start = 0
    for size in sizes:
        cut = [slice(var, axes=[1], starts=[start], ends=[start + size]) for var in found]
        for piece, column in zip(cut, parts, strict=True):
            shaped = reshape(piece, [-1, size, 1])
            shaped.stop_gradient = True
            column.append(shaped)
        start += size
    return parts
