"""Layers on variable-length sequences (LoD)."""

from __future__ import annotations

from typing import Any

from fluidjax.base.older import without
from fluidjax.framework import Variable, convert_np_dtype_to_dtype_
from fluidjax.layer_helper import LayerHelper
from fluidjax.layers._sequence.checks import VarType, ragged, refuse_eager, variable, variables
from fluidjax.writing.checks import FULL_FLOATS, FULL_NUMBERS, INTS, only

__all__ = [
    "sequence_conv",
    "sequence_softmax",
    "sequence_pool",
    "sequence_concat",
    "sequence_first_step",
    "sequence_last_step",
    "sequence_slice",
    "sequence_expand",
    "sequence_expand_as",
    "sequence_pad",
    "sequence_unpad",
    "sequence_reshape",
    "sequence_scatter",
    "sequence_enumerate",
    "sequence_mask",
    "sequence_reverse",
]


def _one_output(
    helper: LayerHelper, dtype: Any, inputs: dict[str, Any], attrs: dict[str, Any], slot: str = "Out"
) -> Variable:
    """Append the helper's op with a single output of ``dtype`` and return it."""
    out = helper.create_variable_for_type_inference(dtype)
    helper.append_op(type=helper.layer_type, inputs=inputs, outputs={slot: [out]}, attrs=attrs)
    return out


def sequence_conv(
    input: Variable,
    num_filters: int,
    filter_size: int = 3,
    filter_stride: int = 1,
    padding: bool = True,
    padding_start: int | None = None,
    bias_attr: Any = None,
    param_attr: Any = None,
    act: str | None = None,
    name: str | None = None,
) -> Variable:
    """act(concat(input[r + padding_start], ... filter_size rows) W + b), zero outside the sequence of row r.

    Args:
        input: [rows, width] of float32 or float64, with LoD.
        num_filters: width of the result.
        filter_size: number of rows in a context window.
        filter_stride: must be 1.
        padding: kept for compatibility; rows outside the sequence are always zero.
        padding_start: first row of the window, relative to r; default -(filter_size // 2).
        bias_attr, param_attr: the parameters' attributes; ``bias_attr=False`` for no bias.
        act: activation op.

    Returns:
        [rows, num_filters], with the LoD of the input. Raises TypeError for an unsupported input.
    """
    ragged(input, "input", "sequence_conv", FULL_FLOATS)
    helper = LayerHelper("sequence_conv", input=input, param_attr=param_attr, bias_attr=bias_attr, act=act, name=name)
    dtype = helper.input_dtype()
    shape = [filter_size * input.shape[1], num_filters]
    weight = helper.create_parameter(attr=helper.param_attr, shape=shape, dtype=dtype)
    out = helper.create_variable_for_type_inference(dtype)
    helper.append_op(
        type="sequence_conv",
        inputs={"X": [input], "Filter": [weight]},
        outputs={"Out": out},
        attrs={
            "contextStride": filter_stride,
            "contextStart": -(filter_size // 2) if padding_start is None else padding_start,
            "contextLength": filter_size,
        },
    )
    return helper.append_activation(helper.append_bias_op(out))


@without("fluid.layers", "param_attr", "bias_attr")
def sequence_softmax(input: Variable, use_cudnn: bool = False, name: str | None = None) -> Variable:
    """Softmax over the rows of each sequence: exp(x[r]) / sum of exp over the sequence of r.

    Args:
        input: [rows, 1] or [rows] of float32 or float64, with LoD.
        use_cudnn: recorded in the op; has no effect.

    Returns:
        Same shape as the input.
    """
    ragged(input, "input", "sequence_softmax", FULL_FLOATS)
    helper = LayerHelper("sequence_softmax", input=input, use_cudnn=use_cudnn, name=name)
    return _one_output(helper, helper.input_dtype(), {"X": [input]}, {"use_cudnn": use_cudnn})


def sequence_pool(input: Variable, pool_type: str, is_test: bool = False, pad_value: float = 0.0) -> Variable:
    """Reduce each sequence of the finest LoD level to one row, which removes that level.

    Args:
        input: [rows, ...] of float32, with LoD.
        pool_type: sum, average, sqrt (sum / sqrt(length)), max, first or last.
        is_test: do not store the positions of the maxima.
        pad_value: the result for an empty sequence.

    Returns:
        [sequences, ...].

    Examples:
        >>> x = fluid.data("x", [None, 1], lod_level=1)
        >>> y = fluid.layers.sequence_pool(x, "sum")
        >>> rows = fluid.create_lod_tensor(np.float32([[1], [2], [5]]), [[2, 1]], fluid.CPUPlace())
        >>> fluid.Executor().run(feed={"x": rows}, fetch_list=[y])[0].tolist()
        [[3.0], [5.0]]
    """
    ragged(input, "input", "sequence_pool", FULL_FLOATS)
    helper = LayerHelper("sequence_pool", input=input, is_test=is_test, pad_value=pad_value)
    out = helper.create_variable_for_type_inference(helper.input_dtype())
    index = helper.create_variable_for_type_inference(helper.input_dtype())
    helper.append_op(
        type="sequence_pool",
        inputs={"X": input},
        outputs={"Out": out, "MaxIndex": index},
        attrs={"pooltype": pool_type.upper(), "is_test": is_test, "pad_value": pad_value},
    )
    if pool_type == "max":
        index.stop_gradient = True
    return out


def sequence_first_step(input: Variable) -> Variable:
    """The first row of each sequence: ``sequence_pool(input, "first")``."""
    return sequence_pool(input=input, pool_type="first")


def sequence_last_step(input: Variable) -> Variable:
    """The last row of each sequence: ``sequence_pool(input, "last")``."""
    return sequence_pool(input=input, pool_type="last")


def sequence_concat(input: list[Variable], name: str | None = None) -> Variable:
    """Concatenate inputs sequence by sequence: sequence i of the result joins the i-th sequences of all inputs.

    Args:
        input: Variables [rows, ...] with LoD, all with the same number of sequences.

    Returns:
        [total number of rows, ...] with LoD. Raises TypeError if ``input`` is not a list.
    """
    refuse_eager("sequence_concat")
    variables(input, "input", "fluid.layers.sequence_concat", FULL_NUMBERS)
    helper = LayerHelper("sequence_concat", input=input, name=name)
    return _one_output(helper, helper.input_dtype(), {"X": input}, {})


def sequence_slice(input: Variable, offset: Variable, length: Variable, name: str | None = None) -> Variable:
    """Rows [offset[i], offset[i] + length[i]) of sequence i.

    Args:
        input: [rows, ...] with LoD.
        offset, length: int32 or int64 [sequences, 1].

    Returns:
        The selected rows, with LoD.
    """
    ragged(input, "input", "sequence_slice", FULL_NUMBERS)
    ragged(offset, "offset", "sequence_slice", INTS)
    ragged(length, "length", "sequence_slice", INTS)
    helper = LayerHelper("sequence_slice", input=input, offset=offset, length=length, name=name)
    offset.stop_gradient = True
    length.stop_gradient = True
    inputs = {"X": [input], "Offset": [offset], "Length": [length]}
    return _one_output(helper, helper.input_dtype(), inputs, {})


def sequence_expand(x: Variable, y: Variable, ref_level: int = -1, name: str | None = None) -> Variable:
    """Repeat sequence i of ``x`` (row i, without LoD) as often as sequence i of ``y``'s ``ref_level`` has entries.

    Args:
        x: [rows, ...] with at most one LoD level.
        y: supplies the LoD; its values are not used.
        ref_level: the level of y, -1 for the finest.

    Returns:
        The repeated rows; each repetition of a sequence is a sequence of its own.
    """
    ragged(x, "x", "sequence_expand", FULL_NUMBERS)
    helper = LayerHelper("sequence_expand", input=x, name=name)
    return _one_output(helper, helper.input_dtype(), {"X": [x], "Y": [only(y)]}, {"ref_level": ref_level})


def sequence_expand_as(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Repeat row i of ``x`` as often as sequence i of ``y`` has rows; the result has the LoD of ``y``."""
    ragged(x, "x", "sequence_expand_as", FULL_NUMBERS)
    ragged(y, "y", "sequence_expand_as")
    helper = LayerHelper("sequence_expand_as", input=x, name=name)
    return _one_output(helper, helper.input_dtype(), {"X": [x], "Y": [y]}, {})


def sequence_pad(
    x: Variable, pad_value: Variable, maxlen: int | None = None, name: str | None = None
) -> tuple[Variable, Variable]:
    """Pad sequences to a batch, and return their lengths.

    Args:
        x: [rows, ...] with LoD.
        pad_value: fill value beyond the end of a sequence: [1], or a whole row.
        maxlen: the padded length; by default that of the longest sequence, so the shape changes with the batch.

    Returns:
        ([sequences, width, ...], int64 [sequences]).
    """
    ragged(x, "x", "sequence_pad", FULL_NUMBERS)
    ragged(pad_value, "pad_value", "sequence_pad", FULL_NUMBERS)
    helper = LayerHelper("sequence_pad", input=x, name=name)
    out = helper.create_variable_for_type_inference(helper.input_dtype())
    length = helper.create_variable_for_type_inference(VarType.INT64)
    pad_value.stop_gradient = True
    length.stop_gradient = True
    helper.append_op(
        type="sequence_pad",
        inputs={"X": x, "PadValue": pad_value},
        outputs={"Out": out, "Length": length},
        attrs={"padded_length": -1 if maxlen is None else maxlen},
    )
    return out, length


def sequence_unpad(x: Variable, length: Variable, name: str | None = None) -> Variable:
    """Take the first length[i] rows of x[i] as sequence i: the inverse of ``sequence_pad``.

    Args:
        x: [sequences, width, ...].
        length: int64 [sequences].

    Returns:
        [total length, ...] with LoD.
    """
    ragged(x, "x", "sequence_unpad", FULL_NUMBERS)
    ragged(length, "length", "sequence_unpad", ("int64",))
    helper = LayerHelper("sequence_unpad", input=x, name=name)
    length.stop_gradient = True
    return _one_output(helper, helper.input_dtype(), {"X": x, "Length": length}, {})


def sequence_reshape(input: Variable, new_dim: int) -> Variable:
    """Reshape to rows of width ``new_dim``: a sequence of n rows of width w becomes n w / new_dim rows.

    Args:
        input: [rows, width] with LoD; the number of elements of each sequence must be a multiple of ``new_dim``.
    """
    ragged(input, "input", "sequence_reshape", FULL_NUMBERS)
    helper = LayerHelper("sequence_reshape", input=input)
    return _one_output(helper, helper.input_dtype(), {"X": [input]}, {"new_dim": new_dim})


def sequence_scatter(input: Variable, index: Variable, updates: Variable, name: str | None = None) -> Variable:
    """Add update u to ``input`` at [i, id], for each pair (id, u) of sequence i.

    Args:
        input: [sequences, width].
        index: ids [rows, 1] with LoD.
        updates: [rows, 1] with the LoD of ``index``.
    """
    ragged(input, "input", "sequence_scatter", FULL_NUMBERS)
    ragged(index, "index", "sequence_scatter", INTS)
    ragged(updates, "updates", "sequence_scatter", FULL_NUMBERS)
    helper = LayerHelper("sequence_scatter", input=input, name=name)
    inputs = {"X": input, "Ids": index, "Updates": updates}
    return _one_output(helper, helper.input_dtype(), inputs, {})


def sequence_enumerate(input: Variable, win_size: int, pad_value: int = 0, name: str | None = None) -> Variable:
    """Row r of the result holds the ``win_size`` ids from row r on, with ``pad_value`` beyond the end of the sequence.

    Args:
        input: int32 or int64 [rows, 1] with LoD.

    Returns:
        [rows, win_size] with the LoD of the input; no gradient.
    """
    ragged(input, "input", "sequence_enumerate", INTS)
    helper = LayerHelper("sequence_enumerate", input=input, name=name)
    out = helper.create_variable_for_type_inference(helper.input_dtype(), stop_gradient=True)
    helper.append_op(
        type="sequence_enumerate",
        inputs={"X": [input]},
        outputs={"Out": out},
        attrs={"win_size": win_size, "pad_value": pad_value},
    )
    return out


def sequence_mask(x: Variable, maxlen: Any = None, dtype: Any = "int64", name: str | None = None) -> Variable:
    """mask[..., j] = 1 where j < x[...], else 0.

    Args:
        x: lengths, of any shape.
        maxlen: number of columns: an int, an int32 Variable [1], or None for the maximum of ``x``.
        dtype: of the mask.

    Returns:
        [shape of x..., maxlen]; no gradient.
    """
    variable(x, "x", "sequence_mask")
    helper = LayerHelper("sequence_mask", name=name)
    out = helper.create_variable_for_type_inference(dtype=dtype)
    inputs: dict[str, Any] = {"X": [x]}
    attrs = {"out_dtype": out.dtype if out.dtype is not None else convert_np_dtype_to_dtype_(dtype)}
    if maxlen is not None:
        if isinstance(maxlen, Variable):
            inputs["MaxLenTensor"] = maxlen
        else:
            attrs["maxlen"] = maxlen
    helper.append_op(type="sequence_mask", inputs=inputs, outputs={"Y": out}, attrs=attrs)
    out.stop_gradient = True
    return out


def sequence_reverse(x: Variable, name: str | None = None) -> Variable:
    """Reverse the rows of each sequence, preserving the LoD."""
    ragged(x, "x", "sequence_reverse", (*FULL_NUMBERS, "int8"))
    helper = LayerHelper("sequence_reverse", input=x, name=name)
    return _one_output(helper, helper.input_dtype(), {"X": x}, {}, slot="Y")
