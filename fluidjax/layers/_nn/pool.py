"""Pooling layers."""

from __future__ import annotations

from typing import Any

from fluidjax.base.errors import ArgumentError
from fluidjax.base.older import without
from fluidjax.framework import Variable
from fluidjax.layer_helper import LayerHelper
from fluidjax.layers._nn.windows import FORMATS, channel_last, check_rank, window_padding
from fluidjax.layers.utils import convert_to_list
from fluidjax.writing.checks import NUMBERS, check_type, check_variable_and_dtype, only

__all__ = ["pool2d", "pool3d", "adaptive_pool2d", "adaptive_pool3d"]


def _check_pool_type(pool_type: str, layer: str) -> None:
    if pool_type not in ("max", "avg"):
        raise ArgumentError(
            f"Unknown Attr(pool_type) {pool_type!r} in {layer}. It can only be 'max' or 'avg'. Use one."
        )


def _pool(n: int, helper: LayerHelper) -> Variable:
    """Write a pooling over ``n`` spatial axes from the arguments held by ``helper``."""
    args, layer = helper.kwargs, f"pool{n}d"
    input = only(args["input"])
    check_type(input, "input", Variable, layer)
    check_type(args["use_cudnn"], "use_cudnn", bool, layer)
    _check_pool_type(args["pool_type"], layer)
    if not args["global_pooling"] and args["pool_size"] == -1:
        raise ArgumentError(
            f"When Attr(global_pooling) of {layer} is False, Attr(pool_size) must be given and positive; received -1."
            " Pass pool_size."
        )
    last = channel_last(args["data_format"], FORMATS[n], layer)
    stride = convert_to_list(args["pool_stride"], n, "pool_stride")
    padding, algorithm = window_padding(args["pool_padding"], n, last, layer)
    if algorithm == "VALID" and args["ceil_mode"]:
        raise ArgumentError(
            f"When Attr(pool_padding) of {layer} is 'VALID', Attr(ceil_mode) must be False; received True. Change one."
        )
    check_rank(input, n, layer)
    out = helper.create_variable_for_type_inference(input.dtype)
    helper.append_op(
        type=layer,
        inputs={"X": input},
        outputs={"Out": out},
        attrs={
            "pooling_type": args["pool_type"],
            "ksize": convert_to_list(args["pool_size"], n, "pool_size"),
            "global_pooling": args["global_pooling"],
            "strides": stride,
            "paddings": padding,
            "padding_algorithm": algorithm,
            "use_cudnn": args["use_cudnn"],
            "ceil_mode": args["ceil_mode"],
            "use_mkldnn": False,
            "exclusive": args["exclusive"],
            "data_format": args["data_format"],
        },
    )
    return out


@without("fluid.layers", "use_mkldnn")
def pool2d(
    input: Variable,
    pool_size: Any = -1,
    pool_type: str = "max",
    pool_stride: Any = 1,
    pool_padding: Any = 0,
    global_pooling: bool = False,
    use_cudnn: bool = True,
    ceil_mode: bool = False,
    name: str | None = None,
    exclusive: bool = True,
    data_format: str = "NCHW",
) -> Variable:
    """Max or average pooling of [N, C, H, W].

    H_out = (H + pads - pool_size) / pool_stride + 1, rounded down, or up with ceil_mode.

    Args:
        input: float32 or float64, laid out as data_format says ("NCHW" or "NHWC").
        pool_size, pool_stride: an int, or [height, width]; pool_padding: as for the padding of ``conv2d``.
        pool_type: "max" or "avg".
        global_pooling: pool over the whole image; pool_size and pool_padding are ignored.
        exclusive: exclude padding from averages.

    Returns:
        [N, C, H_out, W_out]. Raises ValueError for an unknown type or format, or a missing pool_size.

    Examples:
        >>> image = fluid.data("image", [None, 3, 32, 32])
        >>> fluid.layers.pool2d(image, pool_size=2, pool_stride=2).shape
        (-1, 3, 16, 16)
        >>> fluid.layers.pool2d(image, pool_type="avg", global_pooling=True).shape
        (-1, 3, 1, 1)
    """
    helper = LayerHelper("pool2d", **locals())
    return _pool(2, helper)


@without("fluid.layers", "use_mkldnn")
def pool3d(
    input: Variable,
    pool_size: Any = -1,
    pool_type: str = "max",
    pool_stride: Any = 1,
    pool_padding: Any = 0,
    global_pooling: bool = False,
    use_cudnn: bool = True,
    ceil_mode: bool = False,
    name: str | None = None,
    exclusive: bool = True,
    data_format: str = "NCDHW",
) -> Variable:
    """Max or average pooling of [N, C, D, H, W]; as ``pool2d``, with one more spatial axis."""
    helper = LayerHelper("pool3d", **locals())
    return _pool(3, helper)


def _adaptive(n: int, input: Variable, pool_size: Any, pool_type: str, require_index: bool, name: str | None) -> Any:
    layer = f"adaptive_pool{n}d"
    check_variable_and_dtype(input, "input", NUMBERS, layer)
    check_type(pool_type, "pool_type", str, layer)
    check_type(pool_size, "pool_size", (int, list, tuple), layer)
    check_type(require_index, "require_index", bool, layer)
    _check_pool_type(pool_type, layer)
    if pool_type == "avg" and require_index:
        raise ArgumentError(f"{layer}: require_index is for 'max' alone, received pool_type 'avg'. Leave it out.")
    size = convert_to_list(pool_size, n, "pool_size")
    maximum = pool_type == "max"
    op_type = f"max_pool{n}d_with_index" if maximum else f"pool{n}d"
    helper = LayerHelper(op_type, name=name)
    out = helper.create_variable_for_type_inference(input.dtype)
    outputs = {"Out": out}
    mask = None
    if maximum:
        mask = helper.create_variable_for_type_inference(input.dtype)
        outputs["Mask"] = mask
    attrs = {"pooling_type": pool_type, "ksize": size, "adaptive": True}
    if maximum:
        del attrs["pooling_type"]
    helper.append_op(type=op_type, inputs={"X": input}, outputs=outputs, attrs=attrs)
    return (out, mask) if require_index else out


def adaptive_pool2d(
    input: Variable, pool_size: Any, pool_type: str = "max", require_index: bool = False, name: str | None = None
) -> Any:
    """Pooling of [N, C, H, W] to the size ``pool_size`` [H_out, W_out].

    Window i covers rows floor(i H / H_out) up to ceil((i + 1) H / H_out).

    Returns:
        [N, C, H_out, W_out]; with require_index (max only), also the flat positions of the maxima, int32.
    """
    return _adaptive(2, input, pool_size, pool_type, require_index, name)


def adaptive_pool3d(
    input: Variable, pool_size: Any, pool_type: str = "max", require_index: bool = False, name: str | None = None
) -> Any:
    """Pooling of [N, C, D, H, W] to ``pool_size``; as ``adaptive_pool2d``, with one more spatial axis."""
    return _adaptive(3, input, pool_size, pool_type, require_index, name)
