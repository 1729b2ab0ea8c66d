"""YOLOv3: yolo_box and yolov3_loss.

A cell (row k, column l) of X predicts, for each anchor, (tx, ty, tw, th, objectness, class scores ...); its box is
((l + a s(tx) + b) / H, (k + a s(ty) + b) / H, e^tw anchor_w / input, e^th anchor_h / input), a = scale_x_y,
b = (1 - a) / 2, s the sigmoid, input = downsample_ratio * H. As in Fluid, maps are assumed to be square.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from lowering.engine.shapes.infer_rules import by_rule
from lowering.errors import Misfit
from lowering.ops import fitting
from lowering.registry import op
from lowering.values import LoDArray, Wide
from lowering.wide.sizes import used_shape


def _boxes(x, anchors, ratio, height, scale):
    """Centers and sizes relative to the image, four [N, A, H, W], from X [N, A, 5 + C, H, W] of a used height."""
    (room, width), input_size = x.shape[3:], ratio * height
    bias = -0.5 * (scale - 1)
    cx = (jnp.arange(width, dtype=x.dtype) + jax.nn.sigmoid(x[:, :, 0]) * scale + bias) / height
    cy = (jnp.arange(room, dtype=x.dtype)[:, None] + jax.nn.sigmoid(x[:, :, 1]) * scale + bias) / height
    w, h = (jnp.exp(x[:, :, 2 + i]) * anchors[:, i, None, None] / input_size for i in (0, 1))
    return cx, cy, w, h


def _extent(x: LoDArray | Wide):
    """The height and width of maps: those that a run uses where they have room for more."""
    return (used_shape(x) if isinstance(x, Wide) else x.shape)[2:]


def _pairs(anchors, dtype):
    return np.asarray(anchors, dtype).reshape(-1, 2)


def _declared(shapes, attr):
    (n, channels, height, width), (images, _) = shapes["X"], shapes["ImgSize"]
    count, classes = len(attr("anchors")) // 2, attr("class_num")
    if channels != count * (5 + classes + attr("iou_aware")) or (n != images and min(n, images) >= 0):
        return None
    cells = count * height * width if max(height, width) >= 0 else -1
    return {"Boxes": (n, cells, 4), "Scores": (n, cells, classes)}


def _fitting_maps(x, count, anchors, classes, more=0):
    """The head has a map for the box, the objectness and each class of every anchor; anchors are pairs."""
    if not anchors or len(anchors) % 2:
        raise Misfit(f"anchors must be pairs of width and height, received {len(anchors)} numbers")
    fitting.within("class_num", classes, 1)
    fitting.rank("X", x, 4)
    fitting.dim("X", x, 1, count * (5 + classes + more))


@op(out="Boxes Scores", diff="", lod=None, newer="iou_aware iou_aware_factor", infer=by_rule(_declared))
def yolo_box(
    x: LoDArray,
    img_size,
    *,
    class_num: int,
    anchors: list[int] = [],  # noqa: B006
    downsample_ratio: int = 32,
    conf_thresh: float = 0.01,
    clip_bbox: bool = True,
    scale_x_y: float = 1.0,
    iou_aware: bool = False,
    iou_aware_factor: float = 0.5,
):
    """Boxes [N, A H W, 4] in image pixels (ImgSize: height, width) and Scores [N, A H W, class_num].

    Both are zero where the objectness s(t) is below ``conf_thresh``; a score is objectness times class probability.
    With ``iou_aware`` (Paddle 2), the first maps predict overlaps, and objectness is s(t)^(1 - f) overlap^f.
    """
    (n, _, room, width), (height, _) = x.shape, _extent(x)
    maps, pairs = jnp.asarray(x.data), _pairs(anchors, x.dtype)
    if iou_aware:
        overlap, maps = jax.nn.sigmoid(maps[:, : len(pairs)]), maps[:, len(pairs) :]
    maps = maps.reshape(n, len(pairs), 5 + class_num, room, width)
    cx, cy, w, h = _boxes(maps, pairs, downsample_ratio, height, scale_x_y)
    image_h, image_w = (img_size[:, i].astype(x.dtype).reshape(n, 1, 1, 1) for i in (0, 1))
    x0, x1 = (cx - w / 2) * image_w, (cx + w / 2) * image_w
    y0, y1 = (cy - h / 2) * image_h, (cy + h / 2) * image_h
    if clip_bbox:
        x0, y0 = jnp.maximum(x0, 0), jnp.maximum(y0, 0)
        x1, y1 = jnp.minimum(x1, image_w - 1), jnp.minimum(y1, image_h - 1)
    confidence = jax.nn.sigmoid(maps[:, :, 4])
    if iou_aware:
        confidence = confidence ** (1 - iou_aware_factor) * overlap**iou_aware_factor
    sure = confidence >= conf_thresh
    boxes = jnp.where(sure[..., None], jnp.stack([x0, y0, x1, y1], axis=-1), 0)
    scores = jnp.where(sure[:, :, None], confidence[:, :, None] * jax.nn.sigmoid(maps[:, :, 5:]), 0)
    return boxes.reshape(n, -1, 4), jnp.moveaxis(scores, 2, -1).reshape(n, -1, class_num)


@yolo_box.fits
def _(x, img_size, *, anchors, class_num, iou_aware):
    _fitting_maps(x, len(anchors) // 2, anchors, class_num, iou_aware)


def _overlap(one, two):
    """Intersection over union of (cx, cy, w, h) tuples that broadcast."""
    sides = [
        jnp.minimum(one[i] + one[i + 2] / 2, two[i] + two[i + 2] / 2)
        - jnp.maximum(one[i] - one[i + 2] / 2, two[i] - two[i + 2] / 2)
        for i in (0, 1)
    ]
    common = jnp.where((sides[0] < 0) | (sides[1] < 0), 0, sides[0] * sides[1])
    return common / (one[2] * one[3] + two[2] * two[3] - common)


def _entropy(x, label):
    return jnp.maximum(x, 0) - x * label + jnp.log1p(jnp.exp(-jnp.abs(x)))


def _best_overlap(x, pairs, gt, valid, ratio, height, scale):
    """[N, A, H, W]: the largest overlap of each predicted box with a true one."""
    predicted = [v[..., None] for v in _boxes(x, pairs, ratio, height, scale)]
    true = [gt[:, None, None, None, :, i] for i in range(4)]
    return jnp.where(valid[:, None, None, None], _overlap(predicted, true), 0).max(axis=-1, initial=0)


def _matched_anchor(gt, valid, anchors, mask, input_size):
    """int32 [N, B]: the place in ``anchor_mask`` of the anchor most like each true box; -1 for none."""
    zero = jnp.zeros_like(gt[..., :1])
    shapes = [zero, zero, *(jnp.asarray(anchors[:, i] / input_size) for i in (0, 1))]
    best = _overlap([zero, zero, gt[..., 2:3], gt[..., 3:4]], shapes).argmax(axis=-1)
    place = np.full(len(anchors), -1, np.int32)
    place[np.asarray(mask)] = np.arange(len(mask))
    return jnp.where(valid, jnp.asarray(place)[best], -1)


def _cells(gt, shape):
    """(row, column) [N, B] of the cell that holds each true box's center."""
    row = jnp.clip((gt[..., 1] * shape[0]).astype(jnp.int32), 0, shape[0] - 1)
    return row, jnp.clip((gt[..., 0] * shape[1]).astype(jnp.int32), 0, shape[1] - 1)


def _objectness(gt, score, match, best, ignore, extent):
    """[N, A, H, W]: the score of the true box in a cell (the last one wins), -1 where ignored, else 0."""
    mask = jnp.where(best > ignore, -1.0, 0.0).astype(best.dtype)
    row, column = _cells(gt, extent)
    image = jnp.arange(best.shape[0])

    def put(t, mask):
        place = (image, jnp.maximum(match[:, t], 0), row[:, t], column[:, t])
        return mask.at[place].set(jnp.where(match[:, t] >= 0, score[:, t], mask[place]))

    return jax.lax.fori_loop(0, gt.shape[1], put, mask)


def _loss(x, gt, label, score, match, objectness, pairs, ratio, extent, smooth):
    """[N]: location, class and objectness losses of X [N, A, 5 + C, H, W] for given matches."""
    classes, input_size = x.shape[2] - 5, ratio * extent[0]
    row, column = _cells(gt, extent)
    image = jnp.arange(x.shape[0])[:, None]
    anchor = jnp.maximum(match, 0)
    cell = x[image, anchor, :, row, column]  # [N, B, 5 + C]
    weight = jnp.where(match >= 0, score, 0)
    box = weight * (2 - gt[..., 2] * gt[..., 3])
    side = extent[0]
    tx, ty = gt[..., 0] * side - column, gt[..., 1] * side - row
    sizes = jnp.asarray(pairs)[anchor]
    safe = jnp.where((match >= 0)[..., None], gt[..., 2:], 1)
    tw, th = (jnp.log(safe[..., i] * input_size / sizes[..., i]) for i in (0, 1))
    location = _entropy(cell[..., 0], tx) + _entropy(cell[..., 1], ty)
    location += jnp.abs(cell[..., 2] - tw) + jnp.abs(cell[..., 3] - th)
    low = min(1.0 / classes, 1.0 / 40) if smooth else 0.0
    target = jnp.where(jnp.arange(classes) == label[..., None], 1 - low, low).astype(x.dtype)
    per_box = location * box + _entropy(cell[..., 5:], target).sum(axis=-1) * weight
    seen = jnp.where(objectness > 1e-5, _entropy(x[:, :, 4], 1.0) * objectness, 0)
    unseen = jnp.where((objectness <= 1e-5) & (objectness > -0.5), _entropy(x[:, :, 4], 0.0), 0)
    used = [np.arange(room, dtype=np.int32) < n for room, n in zip(x.shape[3:], extent, strict=True)]
    return per_box.sum(axis=1) + jnp.where(used[0][:, None] & used[1], seen + unseen, 0).sum(axis=(1, 2, 3))


_SLOTS = {"gt_box": "GTBox", "gt_label": "GTLabel", "gt_score": "GTScore", "gt_match_mask": "GTMatchMask"}


def _setting(x, gt_box, gt_score, anchors, anchor_mask, class_num):
    """(X as [N, A, 5 + C, H, W], scores, all anchors, those of the mask)."""
    n, _, height, width = x.shape
    pairs = _pairs(anchors, x.dtype)
    score = jnp.ones(gt_box.shape[:2], x.dtype) if gt_score is None else gt_score
    shaped = jnp.asarray(x.data).reshape(n, len(anchor_mask), 5 + class_num, height, width)
    return shaped, score, pairs, pairs[np.asarray(anchor_mask)]


@op(out="Loss ObjectnessMask~ GTMatchMask~", slots=_SLOTS, diff="x", lod=None, undeclared="ObjectnessMask:dtype")
def yolov3_loss(
    x: LoDArray,
    gt_box,
    gt_label,
    gt_score=None,
    *,
    class_num: int,
    anchors: list[int] = [],  # noqa: B006
    anchor_mask: list[int] = [],  # noqa: B006
    downsample_ratio: int = 32,
    ignore_thresh: float = 0.7,
    use_label_smooth: bool = True,
    scale_x_y: float = 1.0,
):
    """YOLOv3's loss [N] for ground-truth boxes GTBox [N, B, 4] (cx, cy, w, h relative), labels and scores [N, B].

    A ground-truth box is assigned to the anchor of most similar shape, if that is in ``anchor_mask`` (GTMatchMask: its
    index, else -1), and to the cell of its center (ObjectnessMask: its score). There the loss is score (2 - w h) times
    cross entropies of tx, ty and absolute errors of tw, th, plus the cross entropies of the classes; objectness counts
    everywhere except where the predicted box overlaps a ground truth by more than ``ignore_thresh`` (mask -1).
    """
    shaped, score, pairs, own = _setting(x, gt_box, gt_score, anchors, anchor_mask, class_num)
    ratio, extent = downsample_ratio, _extent(x)
    valid = (gt_box[..., 2] > 1e-6) & (gt_box[..., 3] > 1e-6)
    best = _best_overlap(shaped, own, gt_box, valid, ratio, extent[0], scale_x_y)
    match = _matched_anchor(gt_box, valid, pairs, anchor_mask, ratio * extent[0])
    objectness = _objectness(gt_box, score, match, best, ignore_thresh, extent)
    loss = _loss(shaped, gt_box, gt_label, score, match, objectness, own, ratio, extent, use_label_smooth)
    return loss, objectness, match.astype(jnp.int32)


@yolov3_loss.fits
def _(x, gt_box, gt_label, *, anchors, anchor_mask, class_num):
    _fitting_maps(x, len(anchor_mask), anchors, class_num)
    fitting.same("height and width of X", x.shape[2:3], x.shape[3:])
    fitting.rank("GTBox", gt_box, 3)
    fitting.dim("GTBox", gt_box, 2, 4)
    fitting.rank("GTLabel", gt_label, 2)
    if max(anchor_mask, default=0) >= len(anchors) // 2:
        raise Misfit(f"anchor_mask must be numbers of the {len(anchors) // 2} anchors, received {list(anchor_mask)}")


@yolov3_loss.grad(slots=_SLOTS)
def _(
    x: LoDArray,
    gt_box,
    gt_label,
    objectness_mask,
    gt_match_mask,
    d_loss,
    gt_score=None,
    *,
    class_num,
    anchors,
    anchor_mask,
    downsample_ratio,
    use_label_smooth,
):
    shaped, score, _, own = _setting(x, gt_box, gt_score, anchors, anchor_mask, class_num)
    rest = (own, downsample_ratio, _extent(x), use_label_smooth)

    def loss(values):
        return _loss(values, gt_box, gt_label, score, gt_match_mask, objectness_mask, *rest)

    return jax.vjp(loss, shaped)[1](d_loss)[0].reshape(x.shape)


@yolov3_loss.grad_maker
def _(g):
    spec = g.regular()
    spec.outputs.update({"GTBox@GRAD": [], "GTLabel@GRAD": [], "GTScore@GRAD": []})
    return [spec]
