"""Box layers: priors, anchors, coding, overlap, clipping."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidjax.base.errors import ArgumentError
from fluidjax.framework import Variable
from fluidjax.writing.checks import FULL_FLOATS, check_variable_and_dtype, only
from fluidjax.writing.emit import emit, emit_many

__all__ = [
    "anchor_generator",
    "box_clip",
    "box_coder",
    "box_decoder_and_assign",
    "density_prior_box",
    "iou_similarity",
    "polygon_box_transform",
    "prior_box",
]


def _floats(values: Any, what: str) -> list[float]:
    """A number or a list of numbers, as a list of floats."""
    if not isinstance(values, (list, tuple)):
        values = [values]
    try:
        return [float(v) for v in values]
    except (TypeError, ValueError):
        raise TypeError(f"{what} should be a number or a list of numbers, received {values!r}. Pass numbers.") from None


def _pair(steps: Any, what: str) -> tuple[float, float]:
    if not isinstance(steps, (list, tuple)) or len(steps) != 2:
        raise ArgumentError(f"{what} should be a list or tuple of two (width, height), received {steps!r}. Pass two.")
    return float(steps[0]), float(steps[1])


def prior_box(
    input: Variable,
    image: Variable,
    min_sizes: Any,
    max_sizes: Any = None,
    aspect_ratios: Any = [1.0],  # noqa: B006
    variance: Sequence[float] = [0.1, 0.1, 0.2, 0.2],  # noqa: B006
    flip: bool = False,
    clip: bool = False,
    steps: Sequence[float] = [0.0, 0.0],  # noqa: B006
    offset: float = 0.5,
    name: str | None = None,
    min_max_aspect_ratios_order: bool = False,
) -> tuple[Variable, Variable]:
    """SSD's prior boxes, centred on the cells of a feature map.

    Args:
        input: feature map [N, C, H, W]; image: [N, C, height, width].
        min_sizes, max_sizes: sides of the square boxes in pixels; a max size adds a box of side sqrt(min max).
        aspect_ratios: ratios of additional boxes with the area of a min size; ``flip`` adds their reciprocals.
        variance: the four variances that ``box_coder`` divides by.
        clip: clip the boxes to the image.
        steps: (width, height) spacing of the cells in pixels; 0 means image size / map size.
        offset: position of the centre within a cell.
        min_max_aspect_ratios_order: order the boxes min, max, ratios instead of min, ratios, max.

    Returns:
        Boxes (x0, y0, x1, y1) relative to the image and their variances, both [H, W, P, 4].

    Raises:
        TypeError: the feature map is not floating point; ValueError: ``steps`` is not a pair.
    """
    check_variable_and_dtype(input, "input", ["uint8", "int8", *FULL_FLOATS], "prior_box")
    step_w, step_h = _pair(steps, "steps")
    attrs = {
        "min_sizes": _floats(min_sizes, "min_sizes"),
        "aspect_ratios": _floats(aspect_ratios, "aspect_ratios"),
        "variances": list(variance),
        "flip": flip,
        "clip": clip,
        "step_w": step_w,
        "step_h": step_h,
        "offset": offset,
        "min_max_aspect_ratios_order": min_max_aspect_ratios_order,
    }
    if max_sizes is not None and len(largest := _floats(max_sizes, "max_sizes")) > 0 and largest[0] > 0:
        attrs["max_sizes"] = largest
    outputs = [("Boxes", input.dtype, True), ("Variances", input.dtype, True)]
    boxes, spread = emit_many("prior_box", {"Input": input, "Image": image}, outputs, attrs, name=name)
    return boxes, spread


def density_prior_box(
    input: Variable,
    image: Variable,
    densities: Sequence[int] | None = None,
    fixed_sizes: Sequence[float] | None = None,
    fixed_ratios: Sequence[float] | None = None,
    variance: Sequence[float] = [0.1, 0.1, 0.2, 0.2],  # noqa: B006
    clip: bool = False,
    steps: Sequence[float] = [0.0, 0.0],  # noqa: B006
    offset: float = 0.5,
    flatten_to_2d: bool = False,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Prior boxes of fixed sizes, with ``densities[i]``^2 boxes of the i-th size in each cell.

    Args:
        input, image, variance, clip, steps, offset: as for ``prior_box``.
        densities: one per entry of ``fixed_sizes``.
        fixed_ratios: aspect ratios used for every size.
        flatten_to_2d: return [H W P, 4].

    Returns:
        Boxes relative to the image and their variances, [H, W, P, 4].

    Raises:
        ValueError: ``densities`` and ``fixed_sizes`` differ in length.
    """
    check_variable_and_dtype(input, "input", FULL_FLOATS, "density_prior_box")
    densities, sizes, ratios = list(densities or []), list(fixed_sizes or []), list(fixed_ratios or [])
    if len(densities) != len(sizes):
        raise ArgumentError(
            f"Densities and fixed_sizes length should be equal, received {len(densities)} and {len(sizes)}."
            " Give one density for each size."
        )
    step_w, step_h = _pair(steps, "steps")
    attrs: dict[str, Any] = {
        "variances": list(variance),
        "clip": clip,
        "step_w": step_w,
        "step_h": step_h,
        "offset": offset,
        "densities": densities,
        "fixed_sizes": _floats(sizes, "fixed_sizes"),
        "fixed_ratios": _floats(ratios, "fixed_ratios"),
        "flatten_to_2d": flatten_to_2d,
    }
    outputs = [("Boxes", input.dtype, True), ("Variances", input.dtype, True)]
    boxes, spread = emit_many("density_prior_box", {"Input": input, "Image": image}, outputs, attrs, name=name)
    return boxes, spread


def anchor_generator(
    input: Variable,
    anchor_sizes: Any = None,
    aspect_ratios: Any = None,
    variance: Sequence[float] = [0.1, 0.1, 0.2, 0.2],  # noqa: B006
    stride: Sequence[float] | None = None,
    offset: float = 0.5,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Faster R-CNN's anchors in image pixels, centred on the cells of a feature map [N, C, H, W].

    Args:
        anchor_sizes, aspect_ratios: a number or a list.
        stride: (width, height) spacing of the cells in pixels.

    Returns:
        Anchors and variances, [H, W, P, 4].

    Raises:
        ValueError: ``stride`` is not a pair.
    """
    input = only(input)
    check_variable_and_dtype(input, "input", FULL_FLOATS, "anchor_generator")
    attrs = {
        "anchor_sizes": _floats(anchor_sizes, "anchor_sizes"),
        "aspect_ratios": _floats(aspect_ratios, "aspect_ratios"),
        "variances": list(variance),
        "stride": list(_pair(stride, "stride")),
        "offset": offset,
    }
    outputs = [("Anchors", input.dtype, True), ("Variances", input.dtype, True)]
    anchors, spread = emit_many("anchor_generator", {"Input": input}, outputs, attrs, name=name)
    return anchors, spread


def iou_similarity(x: Variable, y: Variable, box_normalized: bool = True, name: str | None = None) -> Variable:
    """Pairwise intersection over union of boxes x [N, 4] and y [M, 4]: [N, M], with the LoD of x.

    Boxes in pixels (``box_normalized`` False) include both edges: width = x1 - x0 + 1.
    """
    return emit("iou_similarity", {"X": x, "Y": y}, x.dtype, {"box_normalized": box_normalized}, name=name)


def box_coder(
    prior_box: Variable,
    prior_box_var: Any,
    target_box: Variable,
    code_type: str = "encode_center_size",
    box_normalized: bool = True,
    name: str | None = None,
    axis: int = 0,
) -> Variable:
    """Encode boxes as offsets from priors, or decode them.

    Args:
        prior_box: [M, 4].
        prior_box_var: variances: a Variable [M, 4], a list of four, or None.
        target_box: boxes [N, 4] to encode, or offsets [N, M, 4] to decode.
        code_type: ``encode_center_size`` or ``decode_center_size``.
        axis: when decoding, the axis of ``target_box`` along which the priors vary: 0 ([N, M] with M priors) or 1.

    Returns:
        [N, M, 4].

    Raises:
        TypeError: ``prior_box_var`` has an unsupported type.
    """
    target_box = only(target_box)
    check_variable_and_dtype(prior_box, "prior_box", FULL_FLOATS, "box_coder")
    check_variable_and_dtype(target_box, "target_box", FULL_FLOATS, "box_coder")
    inputs = {"PriorBox": prior_box, "TargetBox": target_box}
    attrs: dict[str, Any] = {"code_type": code_type, "box_normalized": box_normalized, "axis": axis}
    if isinstance(prior_box_var, Variable):
        inputs["PriorBoxVar"] = prior_box_var
    elif isinstance(prior_box_var, list):
        attrs["variance"] = prior_box_var
    elif prior_box_var is not None:
        raise TypeError(
            f"Input variance of box_coder must be Variable or list, received {type(prior_box_var).__name__}."
            " Pass a Variable, a list of four numbers or None."
        )
    return emit("box_coder", inputs, prior_box.dtype, attrs, name=name, slot="OutputBox")


def box_decoder_and_assign(
    prior_box: Variable,
    prior_box_var: Variable,
    target_box: Variable,
    box_score: Variable,
    box_clip: float,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Decode the offsets of every class and select the box of the highest-scoring one.

    Args:
        prior_box: [N, 4]; prior_box_var: [4]; target_box: [N, 4 C]; box_score: [N, C].
        box_clip: upper bound on the log sizes.

    Returns:
        Decoded boxes [N, 4 C], and the boxes [N, 4] of the best class other than the first (background).
    """
    inputs = {"PriorBox": prior_box, "PriorBoxVar": prior_box_var, "TargetBox": target_box, "BoxScore": box_score}
    outputs = [("DecodeBox", prior_box.dtype, False), ("OutputAssignBox", prior_box.dtype, False)]
    decoded, assigned = emit_many("box_decoder_and_assign", inputs, outputs, {"box_clip": box_clip}, name=name)
    return decoded, assigned


def box_clip(input: Variable, im_info: Variable, name: str | None = None) -> Variable:
    """Clip boxes to their images; im_info [N, 3] holds the height, width and scale of each image."""
    check_variable_and_dtype(input, "input", FULL_FLOATS, "box_clip")
    check_variable_and_dtype(im_info, "im_info", FULL_FLOATS, "box_clip")
    return emit("box_clip", {"Input": input, "ImInfo": im_info}, input.dtype, name=name, slot="Output")


def polygon_box_transform(input: Variable, name: str | None = None) -> Variable:
    """Corner coordinates from offsets [N, 2 k, H, W]: 4 x - input in even channels, 4 y - input in odd ones."""
    check_variable_and_dtype(input, "input", FULL_FLOATS, "polygon_box_transform")
    return emit("polygon_box_transform", {"Input": input}, input.dtype, name=name, slot="Output")
