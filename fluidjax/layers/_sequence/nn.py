"""Sequence-related layers that Fluid defines in ``layers.nn``: LoD changes, patches, positions, hashes, filters."""

from __future__ import annotations

from typing import Any

from fluidjax.base.errors import ArgumentError
from fluidjax.framework import Variable
from fluidjax.layer_helper import LayerHelper
from fluidjax.layers._sequence.checks import pair, refuse_eager, variable
from fluidjax.writing.checks import FULL_FLOATS, FULL_NUMBERS, INTS

__all__ = [
    "lod_reset",
    "lod_append",
    "im2sequence",
    "row_conv",
    "add_position_encoding",
    "hash",
    "filter_by_instag",
]


def lod_reset(x: Variable, y: Variable | None = None, target_lod: list[int] | None = None) -> Variable:
    """``x`` with a new LoD: that of ``y``, or the offsets stored in ``y``, or ``target_lod``.

    Args:
        x: [rows, ...].
        y: a Variable with LoD, or offsets int32 [n + 1].
        target_lod: offsets.

    Returns:
        ``x`` with the new LoD. Raises ValueError if neither is given.
    """
    variable(x, "x", "lod_reset", FULL_NUMBERS)
    helper = LayerHelper("lod_reset", x=x)
    if y is None and target_lod is None:
        raise ArgumentError(
            "y and target_lod should not be both none: lod_reset needs one of them to take the LoD from. Pass y=..."
        )
    out = helper.create_variable_for_type_inference(dtype=x.dtype)
    if y is not None:
        variable(y, "y", "lod_reset")
        helper.append_op(type="lod_reset", inputs={"X": x, "Y": y}, outputs={"Out": out})
    else:
        helper.append_op(type="lod_reset", inputs={"X": x}, attrs={"target_lod": target_lod}, outputs={"Out": out})
    return out


def lod_append(x: Variable, level: Any) -> Variable:
    """``x`` with an additional, finest LoD level.

    Args:
        x: [rows, ...] with LoD.
        level: offsets as a list or tuple, or a Variable whose LoD (or, without one, whose values) are used.

    Returns:
        ``x`` with the extended LoD. Raises ValueError if ``level`` is neither.
    """
    if x is None:
        raise ArgumentError("Input(x) of lod_append can't be None. Pass a Variable with LoD.")
    if not isinstance(level, (Variable, list, tuple)):
        raise ArgumentError(
            f"Input(level) must be list, tuple or Variable, received {type(level).__name__}. Pass offsets, like"
            " [0, 2, 5]."
        )
    variable(x, "x", "lod_append", FULL_NUMBERS)
    helper = LayerHelper("lod_append", x=x)
    out = helper.create_variable_for_type_inference(dtype=x.dtype)
    inputs: dict[str, Any] = {"X": x}
    attrs: dict[str, Any] = {"append": True}
    if isinstance(level, Variable):
        inputs["Y"] = level
    else:
        attrs["target_lod"] = list(level)
    helper.append_op(type="lod_reset", inputs=inputs, attrs=attrs, outputs={"Out": out})
    return out


def im2sequence(
    input: Variable,
    filter_size: Any = 1,
    stride: Any = 1,
    padding: Any = 0,
    input_image_size: Variable | None = None,
    out_stride: Any = 1,
    name: str | None = None,
) -> Variable:
    """Extract the patches of each image as a sequence of rows.

    Args:
        input: images [n, channels, height, width] of float32.
        filter_size, stride: an int, or [height, width].
        padding: an int, [up and down, left and right], or [up, left, down, right].
        input_image_size: [n, 2], the actual size of each image.
        out_stride: divisor applied to the actual size.

    Returns:
        [number of patches, channels * patch height * patch width] with LoD.
    """
    refuse_eager("im2sequence")
    variable(input, "input", "im2sequence", ("float32",))
    paddings = pair(padding)
    if len(paddings) == 2:
        paddings = paddings * 2
    inputs: dict[str, Any] = {"X": input}
    attrs = {"kernels": pair(filter_size), "strides": pair(stride), "paddings": paddings}
    if input_image_size is not None:
        inputs["Y"] = input_image_size
        attrs["out_stride"] = pair(out_stride)
    helper = LayerHelper("im2sequence", input=input, name=name)
    out = helper.create_variable_for_type_inference(dtype=helper.input_dtype())
    helper.append_op(type="im2sequence", inputs=inputs, outputs={"Out": out}, attrs=attrs)
    return out


def row_conv(input: Variable, future_context_size: int, param_attr: Any = None, act: str | None = None) -> Variable:
    """Lookahead convolution: act(sum over w of W[w] * input[r + w] within the sequence), 0 <= w <= future_context_size.

    Args:
        input: [rows, width] with LoD, or padded [sequences, steps, width], of float32.

    Returns:
        Same shape as the input.
    """
    variable(input, "input", "row_conv", ("float32",))
    helper = LayerHelper("row_conv", input=input, param_attr=param_attr, act=act)
    dtype = helper.input_dtype()
    shape = [future_context_size + 1, input.shape[-1]]
    weight = helper.create_parameter(attr=helper.param_attr, shape=shape, dtype=dtype)
    out = helper.create_variable_for_type_inference(dtype)
    helper.append_op(type="row_conv", inputs={"X": [input], "Filter": [weight]}, outputs={"Out": [out]})
    return helper.append_activation(out)


def add_position_encoding(input: Variable, alpha: float, beta: float, name: str | None = None) -> Variable:
    """alpha input + beta (sin, cos of t / 10000^(k / (h - 1))), with position t in the sequence and k < h = width / 2.

    Args:
        input: [rows, width] with LoD, or [sequences, steps, width]; the width must be even.

    Returns:
        Same shape as the input.
    """
    variable(input, "input", "add_position_encoding", FULL_FLOATS)
    helper = LayerHelper("add_position_encoding", input=input, alpha=alpha, beta=beta, name=name)
    out = helper.create_variable_for_type_inference(dtype=helper.input_dtype())
    helper.append_op(
        type="add_position_encoding",
        inputs={"X": [input]},
        outputs={"Out": out},
        attrs={"alpha": alpha, "beta": beta},
    )
    return out


def hash(input: Variable, hash_size: int, num_hash: int = 1, name: str | None = None) -> Variable:
    """``num_hash`` hashes (XXH64 modulo ``hash_size``) of each row of ids.

    Args:
        input: int32 or int64 [rows, n], with or without LoD.

    Returns:
        [rows, num_hash, 1] with the dtype of the input; no gradient.
    """
    variable(input, "input", "hash", INTS)
    helper = LayerHelper("hash", input=input, num_hash=num_hash, name=name)
    out = helper.create_variable_for_type_inference(helper.input_dtype(), stop_gradient=True)
    helper.append_op(
        type="hash",
        inputs={"X": input},
        outputs={"Out": out},
        attrs={"num_hash": num_hash, "mod_by": hash_size},
    )
    return out


def filter_by_instag(
    ins: Variable, ins_tag: Variable, filter_tag: Variable, is_lod: bool, out_val_if_empty: int = 0
) -> list[Variable]:
    """Select the instances that have one of the given tags, with their loss weights.

    Args:
        ins: [rows, ...], one instance per sequence (or per row, without LoD).
        ins_tag: int64 [rows, 1] with LoD, the tags of each instance.
        filter_tag: int64, the tags to keep.
        is_lod: whether ``ins`` has LoD.
        out_val_if_empty: value of the single row returned if no instance is selected.

    Returns:
        (the selected instances, float32 [instances, 1]: 1, or 0 if none was selected).
    """
    helper = LayerHelper("filter_by_instag", input=ins, ins_tag=ins_tag, filter_tag=filter_tag, is_lod=is_lod)
    out = helper.create_variable_for_type_inference(dtype=ins.dtype)
    weight = helper.create_variable_for_type_inference(dtype="float64")
    index = helper.create_variable_for_type_inference(dtype=ins_tag.dtype)
    helper.append_op(
        type="filter_by_instag",
        inputs={"Ins": ins, "Ins_tag": ins_tag, "Filter_tag": filter_tag},
        outputs={"Out": out, "LossWeight": weight, "IndexMap": index},
        attrs={"is_lod": is_lod, "out_val_if_empty": out_val_if_empty},
    )
    return [out, weight]
