"""The most common layers, fc, embedding and dropout, and a few small ones."""

from __future__ import annotations

import math
from typing import Any

from fluidjax.base.errors import ArgumentError
from fluidjax.base.mode import records_gradients
from fluidjax.base.older import without
from fluidjax.framework import Variable, default_main_program, in_dygraph_mode
from fluidjax.layer_helper import LayerHelper
from fluidjax.writing.checks import FLOATS, FULL_FLOATS, check_dtype, check_type, check_variable_and_dtype

__all__ = ["fc", "embedding", "dropout", "label_smooth", "fsp_matrix", "continuous_value_model", "similarity_focus"]


@without("fluid.layers", "use_mkldnn", "is_test")
def fc(
    input: Any,
    size: int,
    num_flatten_dims: int = 1,
    param_attr: Any = None,
    bias_attr: Any = None,
    act: str | None = None,
    name: str | None = None,
) -> Variable:
    """Fully connected layer: out = act(sum over inputs of X_i W_i + b).

    Args:
        input: a Variable or several; the first num_flatten_dims axes index rows, the remaining ones columns.
        size: number of output columns.
        num_flatten_dims: number of leading axes preserved; -1 for all but the last.
        param_attr, bias_attr: of W_i [columns, size] (a list for several inputs) and b [size] (False: none).
        act: type of the activation op.

    Returns:
        [leading axes, size], with the LoD of the first input.

    Examples:
        >>> x = fluid.data("x", [None, 8])
        >>> fluid.layers.fc(x, 10, act="softmax").shape
        (-1, 10)
        >>> fluid.layers.fc([x, x], 4).shape
        (-1, 4)
        >>> [p.name for p in fluid.default_main_program().all_parameters()]
        ['fc_0.w_0', 'fc_0.b_0', 'fc_1.w_0', 'fc_1.w_1', 'fc_1.b_0']
    """
    helper = LayerHelper("fc", **locals())
    check_type(input, "input", (list, tuple, Variable), "fc")
    for i, one in enumerate(helper.multiple_input()):
        check_type(one, f"input[{i}]", Variable, "fc")
    dtype = helper.input_dtype()
    check_dtype(dtype, "input", FLOATS, "fc")
    products = []
    for x, attr in helper.iter_inputs_and_params():
        split = len(x.shape) - 1 if num_flatten_dims == -1 else num_flatten_dims
        w = helper.create_parameter(attr=attr, shape=[math.prod(x.shape[split:]), size], dtype=dtype, is_bias=False)
        product = helper.create_variable_for_type_inference(dtype)
        helper.append_op(
            type="mul",
            inputs={"X": x, "Y": w},
            outputs={"Out": product},
            attrs={"x_num_col_dims": split, "y_num_col_dims": 1},
        )
        products.append(product)
    total = products[0]
    if len(products) > 1:
        total = helper.create_variable_for_type_inference(dtype)
        helper.append_op(type="sum", inputs={"X": products}, outputs={"Out": total}, attrs={"use_mkldnn": False})
    return helper.append_activation(helper.append_bias_op(total, dim_start=split))


def embedding(
    input: Variable,
    size: Any,
    is_sparse: bool = False,
    is_distributed: bool = False,
    padding_idx: int | None = None,
    param_attr: Any = None,
    dtype: Any = "float32",
) -> Variable:
    """Look up rows of a table W [size[0], size[1]]: out[..., :] = W[input[..., 0]].

    Args:
        input: ids int64 [..., 1].
        size: [number of ids, embedding width].
        is_sparse: the gradient of the table is a SelectedRows of the rows looked up.
        padding_idx: the id that maps to zeros; a negative value counts from the end.

    Returns:
        [..., width], with the LoD of input.

    Examples:
        >>> ids = fluid.data("ids", [None, 1], "int64", lod_level=1)
        >>> fluid.layers.embedding(ids, size=[1000, 16]).shape
        (-1, 16)
    """
    helper = LayerHelper("embedding", **locals())
    check_variable_and_dtype(input, "input", ["int64"], "fluid.layers.embedding")
    check_dtype(dtype, "dtype", FLOATS, "fluid.layers.embedding")
    return lookup(helper, "lookup_table", input, size, is_sparse, is_distributed, padding_idx, dtype)


def lookup(
    helper: LayerHelper,
    op_type: str,
    input: Variable,
    size: Any,
    is_sparse: bool,
    is_distributed: bool,
    padding_idx: int | None,
    dtype: Any,
) -> Variable:
    """Create the table and the lookup op, for both embedding layers."""
    table = helper.create_parameter(attr=helper.param_attr, shape=size, dtype=dtype, is_bias=False)
    out = helper.create_variable_for_type_inference(dtype)
    if padding_idx is None:
        padding_idx = -1
    elif padding_idx < 0:
        padding_idx += size[0]
    helper.append_op(
        type=op_type,
        inputs={"Ids": input, "W": table},
        outputs={"Out": out},
        attrs={
            "is_sparse": is_sparse,
            "is_distributed": is_distributed,
            "remote_prefetch": is_sparse and not is_distributed,
            "padding_idx": padding_idx,
        },
    )
    return out


def dropout(
    x: Variable,
    dropout_prob: float,
    is_test: bool = False,
    seed: int | None = None,
    name: str | None = None,
    dropout_implementation: str = "downgrade_in_infer",
) -> Variable:
    """out = x with each element set to zero with probability dropout_prob.

    Args:
        x: float32 or float64.
        is_test: disable dropout (also set by ``clone(for_test=True)``); ignored in eager mode, where ``eval()`` and
            ``no_grad()`` decide.
        seed: makes the mask reproducible.
        dropout_implementation: "downgrade_in_infer" scales by 1 - dropout_prob at test time; "upscale_in_train"
            divides by it during training.

    Returns:
        A Variable shaped like x.

    Examples:
        >>> with fluid.dygraph.guard():
        ...     x = fluid.layers.ones([1000], "float32")
        ...     kept = fluid.layers.dropout(x, 0.25, dropout_implementation="upscale_in_train").numpy()
        ...     print(np.unique(kept).round(3))
        [0.    1.333]
    """
    helper = LayerHelper("dropout", **locals())
    check_variable_and_dtype(x, "x", FLOATS, "dropout")
    out = helper.create_variable_for_type_inference(dtype=x.dtype)
    mask = helper.create_variable_for_type_inference(dtype="uint8", stop_gradient=True)
    if not seed:
        seed = default_main_program().random_seed or None
    helper.append_op(
        type="dropout",
        inputs={"X": [x]},
        outputs={"Out": [out], "Mask": [mask]},
        attrs={
            "dropout_prob": dropout_prob,
            "is_test": (False if in_dygraph_mode() else is_test or False) or not records_gradients(),
            "fix_seed": seed is not None,
            "seed": seed if seed is not None else 0,
            "dropout_implementation": dropout_implementation,
        },
    )
    return out


def label_smooth(
    label: Variable,
    prior_dist: Variable | None = None,
    epsilon: float = 0.1,
    dtype: Any = "float32",
    name: str | None = None,
) -> Variable:
    """out = (1 - epsilon) label + epsilon prior_dist, where prior_dist defaults to uniform over the last axis.

    Args:
        label: one-hot or soft labels [N, classes], float32 or float64; prior_dist: [1, classes].

    Returns:
        A Variable shaped like label. Raises ValueError unless 0 <= epsilon <= 1.
    """
    if epsilon > 1.0 or epsilon < 0.0:
        raise ArgumentError(f"The value of epsilon must be between 0 and 1, received {epsilon}. Choose another.")
    check_variable_and_dtype(label, "label", FULL_FLOATS, "label_smooth")
    helper = LayerHelper("label_smooth", **locals())
    if not in_dygraph_mode():
        label.stop_gradient = True
    out = helper.create_variable_for_type_inference(dtype)
    inputs = {"X": label, "PriorDist": prior_dist} if prior_dist else {"X": label}
    helper.append_op(type="label_smooth", inputs=inputs, outputs={"Out": out}, attrs={"epsilon": float(epsilon)})
    return out


def fsp_matrix(x: Variable, y: Variable) -> Variable:
    """out[n, i, j] = mean over pixels of x[n, i] y[n, j], for [N, C1, H, W] and [N, C2, H, W]."""
    check_variable_and_dtype(x, "x", FULL_FLOATS, "fsp_matrix")
    check_variable_and_dtype(y, "y", FULL_FLOATS, "fsp_matrix")
    helper = LayerHelper("fsp_matrix", **locals())
    out = helper.create_variable_for_type_inference(dtype=helper.input_dtype(input_param_name="x"))
    helper.append_op(type="fsp", inputs={"X": x, "Y": y}, outputs={"Out": out})
    return out


def continuous_value_model(input: Variable, cvm: Variable, use_cvm: bool = True) -> Variable:
    """Convert show and click counts, the first two columns of an embedding, to logarithms, or remove them.

    Args:
        input: [N, D], or the rows of sequences.
        cvm: [N, 2], show and click; its values serve as the gradients of the two columns.
        use_cvm: True: log(show + 1), log(click + 1) - log(show + 1), the rest; False: the rest alone, [N, D - 2].
    """
    helper = LayerHelper("cvm", **locals())
    out = helper.create_variable(dtype=input.dtype)
    check_variable_and_dtype(input, "input", FLOATS, "cvm")
    helper.append_op(type="cvm", inputs={"X": [input], "CVM": [cvm]}, outputs={"Y": [out]}, attrs={"use_cvm": use_cvm})
    return out


def similarity_focus(input: Variable, axis: int, indexes: list[int], name: str | None = None) -> Variable:
    """A 0/1 mask of input [N, A, B, C]: for each slice of ``indexes`` along ``axis`` (1, 2 or 3), mark the largest
    elements such that no row or column repeats; masks are combined over the slices and broadcast along the axis.

    Raises TypeError or ValueError for an invalid axis or empty indexes.
    """
    helper = LayerHelper("similarity_focus", **locals())
    check_variable_and_dtype(input, "input", FULL_FLOATS, "similarity_focus")
    check_type(axis, "axis", int, "similarity_focus")
    check_type(indexes, "indexes", list, "similarity_focus")
    if axis not in (1, 2, 3):
        raise ArgumentError(f"axis of similarity_focus must be 1, 2 or 3, received {axis}. Choose one of them.")
    if not indexes:
        raise ArgumentError("indexes of similarity_focus can not be empty. Give the slices to look at.")
    out = helper.create_variable_for_type_inference(dtype=input.dtype)
    helper.append_op(
        type="similarity_focus",
        inputs={"X": input},
        outputs={"Out": out},
        attrs={"axis": axis, "indexes": indexes},
    )
    return out
