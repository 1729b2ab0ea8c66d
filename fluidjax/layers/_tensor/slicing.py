"""Slicing, cropping and padding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fluidjax.base.errors import ArgumentError
from fluidjax.framework import Variable, in_dygraph_mode
from fluidjax.layer_helper import LayerHelper
from fluidjax.layers._tensor.shapes import as_attr, as_tensors, contains_variable
from fluidjax.writing.checks import (
    FULL_FLOATS,
    FULL_NUMBERS,
    NUMBERS,
    check_dtype,
    check_type,
    check_variable_and_dtype,
    only,
)
from fluidjax.writing.emit import emit

__all__ = ["crop", "crop_tensor", "pad", "pad2d", "pad_constant_like", "slice", "strided_slice"]


def _bound(
    helper: LayerHelper, inputs: dict[str, Any], attrs: dict[str, Any], flags: list[int], name: str, values: Any
) -> list[int]:
    """Bind one bound (starts, ends, strides) to a slice op; returns the infer flags of its axes."""
    slot = name.capitalize()
    if isinstance(values, Variable):
        values.stop_gradient = True
        inputs[f"{slot}Tensor"] = values
        return [-1] * len(flags)
    attrs[name] = as_attr(values)
    if contains_variable(values):
        inputs[f"{slot}TensorList"] = as_tensors(helper, values)
        return [-1 if isinstance(v, Variable) else f for v, f in zip(values, flags, strict=True)]
    return flags


def slice(input: Variable, axes: list[int], starts: Any, ends: Any) -> Variable:
    """input[starts[i]:ends[i]] along axes[i].

    Args:
        input: a tensor, or a tensor array (sliced along axis 0).
        axes: dimensions to slice.
        starts, ends: lists of ints and Variables [1], or Variables; negative ones count from the end.

    Raises:
        ValueError: ``starts`` or ``ends`` has another type.

    Examples:
        >>> with fluid.dygraph.guard():
        ...     x = fluid.dygraph.to_variable(np.arange(6, dtype="float32").reshape(2, 3))
        ...     print(fluid.layers.slice(x, axes=[1], starts=[-2], ends=[3]).numpy())
        [[1. 2.]
         [4. 5.]]
    """
    for label, value in (("starts", starts), ("ends", ends)):
        if not isinstance(value, (list, tuple, Variable)):
            raise ArgumentError(
                f"Input {label} must be an Variable, python list or tuple, received {type(value).__name__}."
            )
    helper = LayerHelper("slice")
    input = only(input, "slice")
    inputs: dict[str, Any] = {"Input": input}
    attrs: dict[str, Any] = {"axes": list(axes)}
    flags = [1] * len(axes)
    flags = _bound(helper, inputs, attrs, flags, "starts", starts)
    flags = _bound(helper, inputs, attrs, flags, "ends", ends)
    attrs["infer_flags"] = flags
    out = helper.create_variable_for_type_inference(dtype=input.dtype)
    helper.append_op(type="slice", inputs=inputs, attrs=attrs, outputs={"Out": out})
    return out


def strided_slice(input: Variable, axes: list[int], starts: Any, ends: Any, strides: Any) -> Variable:
    """input[starts[i]:ends[i]:strides[i]] along axes[i]; arguments as for ``slice``, and strides may be negative."""
    helper = LayerHelper("strided_slice")
    check_variable_and_dtype(input, "input", FULL_NUMBERS, "strided_slice")
    check_type(axes, "axes", (list, tuple), "strided_slice")
    for label, value in (("starts", starts), ("ends", ends), ("strides", strides)):
        check_type(value, label, (list, tuple, Variable), "strided_slice")
    inputs: dict[str, Any] = {"Input": input}
    attrs: dict[str, Any] = {"axes": list(axes)}
    flags = [1] * len(axes)
    for label, value in (("starts", starts), ("ends", ends), ("strides", strides)):
        if not in_dygraph_mode():  # as in Fluid, where eager bounds may be int64 too
            _check_int32(label, value)
        found = _bound(helper, inputs, attrs, flags, label, value)
        flags = flags if isinstance(value, Variable) else found
    attrs["infer_flags"] = flags
    out = helper.create_variable_for_type_inference(dtype=input.dtype)
    helper.append_op(type="strided_slice", inputs=inputs, attrs=attrs, outputs={"Out": out})
    return out


def _check_int32(label: str, bounds: Any) -> None:
    if isinstance(bounds, Variable):
        check_dtype(bounds.dtype, label, "int32", "strided_slice")
        return
    for i, bound in enumerate(bounds):
        if isinstance(bound, Variable):
            check_dtype(bound.dtype, f"{label}[{i}]", "int32", "strided_slice")


def pad(x: Variable, paddings: list[int], pad_value: float = 0.0, name: str | None = None) -> Variable:
    """Pad ``x`` with paddings[2i] elements of ``pad_value`` before dimension i and paddings[2i + 1] after it."""
    check_variable_and_dtype(x, "x", NUMBERS, "pad")
    attrs = {"paddings": list(paddings), "pad_value": float(pad_value)}
    return emit("pad", {"X": x}, x.dtype, attrs, name=name)


def pad_constant_like(x: Variable, y: Variable, pad_value: float = 0.0, name: str | None = None) -> Variable:
    """Pad ``y`` with ``pad_value`` at the end of each dimension to the shape of ``x``."""
    check_type(x, "x", Variable, "pad_constant_like")
    check_variable_and_dtype(y, "y", FULL_NUMBERS, "pad_constant_like")
    return emit("pad_constant_like", {"X": x, "Y": y}, y.dtype, {"pad_value": float(pad_value)}, name=name)


def pad2d(
    input: Variable,
    paddings: Any = [0, 0, 0, 0],  # noqa: B006  (Fluid's signature; never changed)
    mode: str = "constant",
    pad_value: float = 0.0,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Variable:
    """Pad images.

    Args:
        input: [N, C, H, W] or [N, H, W, C]; float16, float32, float64, int32 or int64.
        paddings: [top, bottom, left, right], or an int32 Variable [4].
        mode: 'constant', 'reflect' (mirrored, excluding the edge) or 'edge'.
        pad_value: the value used by 'constant'.
        data_format: 'NCHW' or 'NHWC'.
    """
    check_variable_and_dtype(input, "input", NUMBERS, "pad2d")
    attrs: dict[str, Any] = {"mode": mode, "pad_value": float(pad_value), "data_format": data_format}
    inputs: dict[str, Any] = {"X": [input]}
    if isinstance(paddings, Variable):
        inputs["Paddings"] = [paddings]
        attrs["paddings"] = []
    else:
        attrs["paddings"] = list(paddings)
    helper = LayerHelper("pad2d", name=name)
    assert mode in ("reflect", "edge", "constant"), f"mode should be one of constant, reflect, edge, received {mode!r}"
    out = helper.create_variable_for_type_inference(input.dtype)
    helper.append_op(type="pad2d", inputs=inputs, outputs={"Out": out}, attrs=attrs)
    return out


def crop(x: Variable, shape: Any = None, offsets: Any = None, name: str | None = None) -> Variable:
    """Crop ``x`` to ``shape`` (a list, or a Variable whose own shape is used), starting at ``offsets``.

    Raises:
        ValueError: ``shape`` is neither a list nor a Variable.
    """
    check_variable_and_dtype(x, "x", FULL_FLOATS if in_dygraph_mode() else ("float32",), "crop")
    helper = LayerHelper("crop", name=name)
    check_type(shape, "shape", (list, tuple, Variable), "crop")
    offsets = [0] * len(x.shape) if offsets is None else offsets
    inputs: dict[str, Any] = {"X": x}
    attrs: dict[str, Any] = {}
    if isinstance(shape, Variable):
        inputs["Y"] = shape
    else:
        attrs["shape"] = list(shape)
    if isinstance(offsets, Variable):
        inputs["Offsets"] = offsets
    else:
        attrs["offsets"] = list(offsets)
    out = helper.create_variable_for_type_inference(x.dtype)
    helper.append_op(type="crop", inputs=inputs, outputs={"Out": out}, attrs=attrs or None)
    return out


def crop_tensor(x: Variable, shape: Any = None, offsets: Any = None, name: str | None = None) -> Variable:
    """Crop ``x`` to ``shape``, starting at ``offsets``.

    Args:
        x: float32, float64, int32 or int64.
        shape: ints and Variables [1], or an int32 Variable; -1 extends to the end.
        offsets: likewise; zeros by default.

    Raises:
        TypeError, ValueError: an argument has the wrong type, or a size or offset is invalid.
    """
    helper = LayerHelper("crop_tensor", name=name)
    check_variable_and_dtype(x, "x", FULL_NUMBERS, "crop_tensor")
    check_type(shape, "shape", (list, tuple, Variable), "crop_tensor")
    check_type(offsets, "offsets", (list, tuple, Variable, type(None)), "crop_tensor")
    offsets = [0] * len(x.shape) if offsets is None else offsets
    out = helper.create_variable_for_type_inference(x.dtype)
    inputs: dict[str, Any] = {"X": x}
    attrs: dict[str, Any] = {}
    _crop_offsets(helper, inputs, attrs, offsets, len(x.shape))
    _crop_shape(helper, inputs, attrs, shape)
    helper.append_op(type="crop_tensor", inputs=inputs, outputs={"Out": out}, attrs=attrs or None)
    return out


def _crop_ints(values: Any, what: str, expected: str, allowed: Callable[[int], bool]) -> None:
    """Check the plain items of an argument: another type is a TypeError, a bad number a ValueError."""
    for value in values:
        if isinstance(value, Variable):
            continue
        check_type(value, what, int, "crop_tensor")
        if not allowed(value):
            raise ArgumentError(f"Attr({what}) of Op(crop_tensor) should hold {expected}, received {values}.")


def _crop_offsets(helper: LayerHelper, inputs: dict[str, Any], attrs: dict[str, Any], offsets: Any, rank: int) -> None:
    if isinstance(offsets, Variable):
        offsets.stop_gradient = True
        inputs["Offsets"] = offsets
        attrs["offsets"] = [-1] * rank
        return
    _crop_ints(offsets, "offsets", "non-negative ints", lambda value: value >= 0)
    attrs["offsets"] = as_attr(offsets)
    if contains_variable(offsets):
        inputs["OffsetsTensor"] = as_tensors(helper, offsets)


def _crop_shape(helper: LayerHelper, inputs: dict[str, Any], attrs: dict[str, Any], shape: Any) -> None:
    if isinstance(shape, Variable):
        shape.stop_gradient = True
        inputs["Shape"] = shape
        return
    _crop_ints(shape, "shape", "positive ints or -1", lambda value: value > 0 or value == -1)
    if contains_variable(shape):
        inputs["ShapeTensor"] = as_tensors(helper, shape)
        attrs["shape"] = as_attr(shape, unknown=0)
    else:
        attrs["shape"] = list(shape)
