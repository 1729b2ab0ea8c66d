"""Proposals of traced boxes, and their levels in a feature pyramid: the results of exported functions.

The number of regions depends on values, so they are rows with room for as many as there can be.
"""

from __future__ import annotations

from functools import partial
from itertools import zip_longest
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lowering.ops.detection.pixel_boxes import clipped, decode, large_enough, large_enough_v2, sides
from lowering.ops.detection.roomy_match import offsets_or_all
from lowering.ops.detection.roomy_nms import joined, kept_of, without_lod
from lowering.ragged.rows import lengths, offsets_of, row_numbers, segment_sum, segments
from lowering.values import Array, LoDArray, data_of, fill_padding


def _one_image(scores, deltas, info, *, anchors, variances, before, after, threshold, large, eta, pixel=1):
    """Boxes [P, 4] and scores [P, 1] of one image, best first, and their number; see ``proposals._one_image``."""
    count = scores.shape[0]
    best, order = jax.lax.top_k(scores, min(before, count) if before > 0 else count)
    boxes = decode(anchors[order], deltas[order] * variances[order], bounded=True, pixel=pixel, numpy=jnp)
    boxes = clipped(boxes, info[0], info[1], pixel, numpy=jnp)
    left, room = large(boxes, info), order.shape[0]
    if threshold > 0:
        most = after if after > 0 else -1
        left = kept_of(boxes, left, threshold=threshold, eta=eta, normalized=not pixel, most=most)
        room = min(room, after) if after > 0 else room
    at = jnp.argsort(~left, stable=True)[:room]
    return boxes[at], best[at][:, None], jnp.sum(left, dtype=np.int32)


def _of_images(scores, deltas, infos, anchors, variances, *, spare=False, **options) -> tuple[LoDArray, LoDArray]:
    """Boxes and scores of all images under a LoD; with ``spare``, an image without any gets a box of zeros."""
    score, delta, info, anchor, variance = map(jnp.asarray, map(data_of, (scores, deltas, infos, anchors, variances)))
    one: Any = partial(_one_image, anchors=anchor.reshape(-1, 4), variances=variance.reshape(-1, 4), **options)
    images = score.shape[0]
    score, delta = score.transpose(0, 2, 3, 1).reshape(images, -1), delta.transpose(0, 2, 3, 1).reshape(images, -1, 4)
    boxes, probs, counts = jax.vmap(one)(score, delta, info)
    if spare:
        boxes, probs = (jnp.where(counts[:, None, None] > 0, v, 0) for v in (boxes, probs))
        counts = jnp.maximum(counts, 1)
    return joined(boxes, counts), joined(probs, counts)


def proposals(
    scores, bbox_deltas, im_info, anchors, variances, *, pre_nms_topN, post_nms_topN, nms_thresh, min_size, eta
):  # fmt: skip
    """The results of ``generate_proposals``."""
    options = {"before": pre_nms_topN, "after": post_nms_topN, "threshold": nms_thresh, "eta": eta}
    options["large"] = partial(large_enough, min_size=min_size)
    rois, probs = _of_images(scores, bbox_deltas, im_info, anchors, variances, **options)
    return rois, probs, rois.lod[0][1:].astype(np.int64), lengths(rois.lod[0])


def proposals_v2(
    scores, bbox_deltas, im_shape, anchors, variances, *, pre_nms_topN, post_nms_topN, nms_thresh, min_size, eta,
    pixel_offset,
):  # fmt: skip
    """The results of ``generate_proposals_v2``."""
    pixel = int(pixel_offset)
    options = {"before": pre_nms_topN, "after": post_nms_topN, "threshold": nms_thresh, "eta": eta, "pixel": pixel}
    options["large"] = partial(large_enough_v2, min_size=min_size, pixel=pixel)
    return without_lod(*_of_images(scores, bbox_deltas, im_shape, anchors, variances, **options, spare=True))


def _images(rois: Any, numbers: Any) -> tuple[Array, Array]:
    """The image of each region, their number for padding, and the offsets of the images."""
    offsets = offsets_or_all(rois) if numbers is None else offsets_of(jnp.asarray(data_of(numbers)).reshape(-1))
    return jnp.asarray(segments(offsets, row_numbers(data_of(rois).shape[0]))), offsets


def _least(level: int, refer_level: int) -> np.float32:
    """The smallest quotient of sizes that belongs to a level; rounding counts a few below the power of two to it."""
    value = np.float32(2.0 ** (level - refer_level))
    while np.floor(np.log2(below := np.nextafter(value, np.float32(0))) + np.float32(refer_level)) >= level:
        value = below
    return value


def distributed(fpn_rois, rois_num, *, min_level, max_level, refer_level, refer_scale, pixel_offset):
    """The results of ``distribute_fpn_proposals``."""
    rois, (image, offsets) = jnp.asarray(data_of(fpn_rois)), _images(fpn_rois, rois_num)
    count, images = rois.shape[0], offsets.shape[0] - 1
    w, h = sides(rois, 0)
    area = jnp.where((w < 0) | (h < 0), 0, (w + int(pixel_offset)) * (h + int(pixel_offset)))
    size = jnp.sqrt(area) / refer_scale + np.float32(1e-6)
    level = min_level + sum(
        (size >= _least(at, refer_level)).astype(np.int32) for at in range(min_level + 1, max_level + 1)
    )
    parts, counts, start, restore = [], [], jnp.int32(0), jnp.zeros(count, np.int32)
    for wanted in range(min_level, max_level + 1):
        chosen = (level == wanted) & (image < images)
        number = segment_sum(chosen.astype(np.int32), image, images)
        ends = offsets_of(number)
        (at,) = jnp.nonzero(chosen, size=count, fill_value=0)
        parts.append(LoDArray(fill_padding(rois[at], ends[-1], backward=False), (ends,), ends[-1]))
        restore = jnp.where(chosen, start + jnp.cumsum(chosen, dtype=np.int32) - 1, restore)
        start, counts = start + ends[-1], [*counts, number]
    rows = offsets[-1] if getattr(fpn_rois, "nrows", None) is not None else None
    return parts, LoDArray(fill_padding(restore[:, None], rows, backward=False), (), rows), counts


def collected(multi_level_rois, multi_level_scores, numbers, *, post_nms_topN):
    """The results of ``collect_fpn_proposals``."""
    pairs = [_images(r, n) for r, n in zip_longest(multi_level_rois, numbers or ())]
    images = pairs[0][1].shape[0] - 1
    rois = jnp.concatenate([jnp.asarray(data_of(r)) for r in multi_level_rois])
    scores = jnp.concatenate([jnp.asarray(data_of(s)).reshape(-1) for s in multi_level_scores])
    image = jnp.concatenate([found for found, _ in pairs])
    room = min(post_nms_topN, rois.shape[0])
    _, best = jax.lax.top_k(jnp.where(image < images, scores, -jnp.inf), room)
    best = best[jnp.argsort(image[best], stable=True)]
    counts = segment_sum(jnp.ones(room, np.int32), image[best], images)
    ends = offsets_of(counts)
    return LoDArray(fill_padding(rois[best], ends[-1], backward=False), (ends,), ends[-1]), counts
