"""Box arithmetic for [x0, y0, x1, y1]: overlap, coding against priors, clipping to the image."""

from __future__ import annotations

import jax.numpy as jnp

from lowering.ops import fitting
from lowering.ops.math.rounding import rounded_product
from lowering.ops.shared import round_half_away
from lowering.ragged import infer as sequence_infer
from lowering.ragged import rows as seq
from lowering.registry import MASKED, Wise, op
from lowering.values import LoDArray


def corners(boxes):
    """The four coordinates, each [...]."""
    return boxes[..., 0], boxes[..., 1], boxes[..., 2], boxes[..., 3]


def area(boxes, extra):
    """Signed area: width times height. ``extra`` is 1 for boxes in pixels, 0 for relative ones."""
    x0, y0, x1, y1 = corners(boxes)
    return rounded_product(x1 - x0 + extra, y1 - y0 + extra)


def overlap(x, y, normalized=True):
    """[N, M] intersection over union of boxes x [N, 4] and y [M, 4].

    To the last bit Fluid's, which decides between priors that lie alike around a box.
    """
    extra = 0 if normalized else 1
    low = jnp.maximum(x[:, None, :2], y[None, :, :2])
    high = jnp.minimum(x[:, None, 2:], y[None, :, 2:])
    sides = jnp.maximum(high - low + extra, 0)
    common = rounded_product(sides[..., 0], sides[..., 1])
    total = area(x, extra)[:, None] + area(y, extra)[None, :] - common
    return jnp.where(common > 0, common / jnp.where(total == 0, 1, total), 0)


@op(diff="", rows=Wise("x"))
def iou_similarity(x, y, *, box_normalized: bool = True):
    """Out[i, j] = |X_i and Y_j| / |X_i or Y_j|, [N, M]."""
    return overlap(x, y, box_normalized)


@iou_similarity.fits
def _(x, y):
    for name, boxes in (("X", x), ("Y", y)):
        fitting.rank(name, boxes, 2)
        fitting.dim(name, boxes, 1, 4)


def _centers(boxes, extra):
    x0, y0, x1, y1 = corners(boxes)
    w, h = x1 - x0 + extra, y1 - y0 + extra
    return x0 + w / 2, y0 + h / 2, w, h


def encode(prior, target, extra):
    """[N, M, 4] offsets of target n against prior m."""
    px, py, pw, ph = _centers(prior[None], extra)
    x0, y0, x1, y1 = corners(target[:, None])
    tx, ty, tw, th = (x0 + x1) / 2, (y0 + y1) / 2, x1 - x0 + extra, y1 - y0 + extra
    return jnp.stack([(tx - px) / pw, (ty - py) / ph, jnp.log(jnp.abs(tw / pw)), jnp.log(jnp.abs(th / ph))], axis=-1)


def decode(prior, offsets, extra):
    """Boxes from offsets [..., 4] against priors of a shape that broadcasts."""
    px, py, pw, ph = _centers(prior, extra)
    dx, dy, dw, dh = corners(offsets)
    x, y, w, h = dx * pw + px, dy * ph + py, jnp.exp(dw) * pw, jnp.exp(dh) * ph
    return jnp.stack([x - w / 2, y - h / 2, x + w / 2 - extra, y + h / 2 - extra], axis=-1)


def _encodes(attrs):
    return str(attrs.get("code_type", "encode_center_size")).lower() == "encode_center_size"


def _off_priors(attrs, ndim):
    """A TargetBox meets all priors, or those along its columns; priors along its rows (axis 1) are paired with it."""
    return Wise("target_box") if _encodes(attrs) or attrs.get("axis", 0) == 0 else Wise("prior_box target_box")


@sequence_infer.inferred
def _infer_box_coder(of):
    prior, target = of("PriorBox"), of("TargetBox")
    if _encodes(of.attrs):
        return {"OutputBox": ((target.shape[0], prior.shape[0], 4), target.lod_level, target.dtype)}
    level = (prior if of.attrs.get("axis", 0) == 1 else target).lod_level
    return {"OutputBox": (target.shape, level, target.dtype)}


@op(out="OutputBox", diff="", lod={"OutputBox": "target_box"}, rows=_off_priors, infer=_infer_box_coder)
def box_coder(
    prior_box: LoDArray,
    target_box,
    prior_box_var=None,
    *,
    code_type: str = "encode_center_size",
    box_normalized: bool = True,
    axis: int = 0,
    variance: list[float] = [],  # noqa: B006
):
    """Encode every TargetBox [N, 4] against every PriorBox [M, 4], divided by the variances; or decode.

    Decoding takes TargetBox [N, M, 4], and priors along ``axis`` 0 (M of them) or 1 (N). Variances are a tensor, four
    numbers, or absent. The boxes have the sequences of TargetBox; along ``axis`` 1 those of PriorBox: proposals of
    several images keep their images though the offsets, which a network made, have none.
    """
    priors = prior_box.data
    extra = 0 if box_normalized else 1
    if prior_box_var is not None:
        spread = prior_box_var
    else:
        spread = jnp.asarray(variance or [1.0] * 4, target_box.dtype)
    if _encodes({"code_type": code_type}):
        return encode(priors, target_box, extra) / spread
    place = (slice(None), None) if axis == 1 else (None, slice(None))
    if spread.ndim == 2:
        spread = spread[place]
    boxes = decode(priors[place], target_box * spread, extra)
    return prior_box.with_data(boxes) if axis == 1 else boxes


@op(diff="", out="Output", lod=None)
def polygon_box_transform(input):
    """Output[n, 2k] = 4 w - Input, Output[n, 2k+1] = 4 h - Input: corners from offsets, EAST's geometry maps."""
    _, channels, height, width = input.shape
    x = 4 * jnp.arange(width, dtype=input.dtype)[None, :]
    y = 4 * jnp.arange(height, dtype=input.dtype)[:, None]
    even = (jnp.arange(channels) % 2 == 0)[:, None, None]
    return jnp.where(even, x, y) - input


@op(out="Output", diff="", lod={"Output": "input"}, rows=MASKED, infer=sequence_infer.like("Input", "Output"))
def box_clip(input: LoDArray, im_info):
    """Clip boxes to their image: x to [0, w/s - 1], y to [0, h/s - 1], rounded; ImInfo[i] = (h, w, s) of image i.

    The boxes of image i are the i-th sequence of Input.
    """
    image = jnp.clip(seq.segments(seq.offsets(input), seq.row_numbers(input.capacity)), 0, im_info.shape[0] - 1)
    height, width = (round_half_away(im_info[:, i] / im_info[:, 2])[image] - 1 for i in (0, 1))
    limit = jnp.stack([width, height, width, height], axis=-1)[:, None]
    boxes = input.data.reshape(input.capacity, -1, 4)
    return seq.per_row(input, jnp.clip(boxes, 0, limit).reshape(input.data.shape))


@op(
    out="DecodeBox OutputAssignBox",
    diff="",
    lod={"DecodeBox": "target_box", "OutputAssignBox": "prior_box"},
    rows=Wise("prior_box target_box box_score"),
)
def box_decoder_and_assign(prior_box, target_box, box_score, prior_box_var=None, *, box_clip: float = 4.135):
    """DecodeBox [N, 4 C]: boxes decoded from TargetBox for each class and PriorBox [N, 4], in pixels, sizes limited to
    exp(box_clip); OutputAssignBox [N, 4]: the box of the best class other than the first (background), or the prior.
    """
    classes = box_score.shape[1]
    offsets = target_box.reshape(-1, classes, 4)
    spread = jnp.ones(4, target_box.dtype) if prior_box_var is None else prior_box_var.reshape(-1)
    offsets = offsets * spread
    offsets = jnp.concatenate([offsets[..., :2], jnp.minimum(offsets[..., 2:], box_clip)], axis=-1)
    decoded = decode(prior_box[:, None], offsets, 1)
    best = jnp.argmax(box_score[:, 1:], axis=1) + 1 if classes > 1 else jnp.zeros(box_score.shape[0], jnp.int32)
    chosen = jnp.take_along_axis(decoded, best[:, None, None].astype(jnp.int32), axis=1)[:, 0]
    assigned = chosen if classes > 1 else prior_box
    return decoded.reshape(target_box.shape), assigned


@box_decoder_and_assign.fits
def _(prior_box, target_box, box_score, prior_box_var=None):
    for name, var in (("PriorBox", prior_box), ("TargetBox", target_box), ("BoxScore", box_score)):
        fitting.rank(name, var, 2)
    fitting.dim("PriorBox", prior_box, 1, 4)
    if prior_box_var is not None:
        fitting.rank("PriorBoxVar", prior_box_var, 1)
        fitting.dim("PriorBoxVar", prior_box_var, 0, 4)
