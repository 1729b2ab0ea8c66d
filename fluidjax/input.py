"""fluid.embedding and fluid.one_hot: lookups whose ids need no trailing dimension of 1."""

from __future__ import annotations

from typing import Any

from fluidjax.framework import Variable
from fluidjax.layer_helper import LayerHelper
from fluidjax.layers._nn.common import lookup
from fluidjax.writing.checks import FLOATS, check_dtype, check_type, check_variable_and_dtype, only

__all__ = ["one_hot", "embedding"]


def one_hot(input: Variable, depth: Any, allow_out_of_range: bool = False) -> Variable:
    """One-hot encoding: out[..., input[...]] = 1.

    Args:
        input: classes int32 or int64, any shape.
        depth: number of classes, an int or a Variable [1].
        allow_out_of_range: map classes out of range to zeros instead of raising.

    Returns:
        float32 [..., depth].
    """
    input = only(input)
    check_type(input, "input", Variable, "one_hot_v2")
    helper = LayerHelper("one_hot_v2", **locals())
    out = helper.create_variable_for_type_inference(dtype="float32")
    inputs: dict[str, Any] = {"X": input}
    attrs: dict[str, Any] = {"allow_out_of_range": allow_out_of_range}
    if isinstance(depth, Variable):
        depth.stop_gradient = True
        inputs["depth_tensor"] = depth
    else:
        attrs["depth"] = depth
    helper.append_op(type="one_hot_v2", inputs=inputs, attrs=attrs, outputs={"Out": out}, stop_gradient=True)
    return out


def embedding(
    input: Variable,
    size: Any,
    is_sparse: bool = False,
    is_distributed: bool = False,
    padding_idx: int | None = None,
    param_attr: Any = None,
    dtype: Any = "float32",
) -> Variable:
    """Look up rows of a table W [size[0], size[1]]: out[..., :] = W[input[...]].

    Args:
        input: ids int64, any shape.
        size: [number of ids, embedding width].
        is_sparse: the gradient of the table is a SelectedRows of the rows looked up.
        padding_idx: the id that maps to zeros; a negative value counts from the end.

    Returns:
        [..., width], with the LoD of input.

    Examples:
        >>> ids = fluid.data("ids", [None, 5], "int64")
        >>> fluid.embedding(ids, size=[1000, 16]).shape
        (-1, 5, 16)
    """
    helper = LayerHelper("embedding", **locals())
    check_variable_and_dtype(input, "input", ["int64"], "fluid.embedding")
    check_dtype(dtype, "dtype", FLOATS, "fluid.embedding")
    return lookup(helper, "lookup_table_v2", input, size, is_sparse, is_distributed, padding_idx, dtype)
