"""Regions over the levels of a feature pyramid: distribute_fpn_proposals, collect_fpn_proposals.

The level of a region depends on its size, so these run on the host, on unpadded rows.
"""

from __future__ import annotations

from itertools import zip_longest

import numpy as np

from lowering.dtypes import INT32
from lowering.ops import fitting
from lowering.ops.detection import roomy_proposals as roomy
from lowering.ops.detection.match import host
from lowering.ops.detection.nms_v3 import by_image
from lowering.program import VarInfo
from lowering.registry import Value, op
from lowering.values import LoDArray


def _area(boxes: np.ndarray, pixel: int) -> np.ndarray:
    """Area of boxes, in whole pixels if ``pixel`` is 1; zero for inverted boxes."""
    w, h = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    return np.where((w < 0) | (h < 0), 0, (w + pixel) * (h + pixel))


def _regions(op_view, var_of):
    """Regions have the LoD level of those given, which may be 0 before a run."""
    rows = op_view.attrs.get("post_nms_topN", -1)
    given = next(iter(op_view.inputs.get("MultiLevelRois") or op_view.inputs["FpnRois"]))
    info = VarInfo((rows, 4), 5, var_of(given).lod_level)
    found = {name: info for slot in ("MultiFpnRois", "FpnRois") for name in op_view.outputs.get(slot, ())}
    counts = [name for slot in ("MultiLevelRoIsNum", "RoisNum") for name in op_view.outputs.get(slot, ())]
    found |= {name: VarInfo((-1,), INT32) for name in counts}
    return found | {name: VarInfo((-1, 1), 2, 0) for name in op_view.outputs.get("RestoreIndex", ())}


def _split(counts: np.ndarray) -> np.ndarray:
    """The offsets of images with these numbers of regions."""
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)


@op(
    out="MultiFpnRois* RestoreIndex MultiLevelRoIsNum*?",
    slots={"multi_level_rois_num": "MultiLevelRoIsNum"},
    diff="",
    lod=None,
    kind="host",
    moves="late",
    infer=_regions,
    newer="rois_num pixel_offset multi_level_rois_num",
)
def distribute_fpn_proposals(
    fpn_rois: Value,
    rois_num: Value = None,
    *,
    min_level: int,
    max_level: int,
    refer_level: int,
    refer_scale: int,
    pixel_offset: bool = True,
):
    """Assign regions to levels floor(log2(sqrt(area) / refer_scale) + refer_level), within [min_level, max_level].

    MultiFpnRois: the regions of each level, image by image; RestoreIndex [R, 1] (int32): the position of each input
    region in their concatenation. Runs on the host.

    In Paddle 2, RoisNum [N] may replace the LoD, and MultiLevelRoIsNum holds the counts of each level.
    """
    rois, offsets = host(by_image(fpn_rois, rois_num))
    scale = np.sqrt(_area(rois, int(pixel_offset)))
    level = np.floor(np.log2(scale / refer_scale + 1e-6) + refer_level).astype(np.int64)
    level = np.clip(level, min_level, max_level)
    image = np.searchsorted(offsets[1:], np.arange(len(rois)), side="right")
    parts, order, counts = [], [], []
    for wanted in range(min_level, max_level + 1):
        chosen = np.flatnonzero(level == wanted)
        counts.append(np.bincount(image[chosen], minlength=len(offsets) - 1).astype(np.int32))
        parts.append(LoDArray(rois[chosen], (_split(counts[-1]),)))
        order.append(chosen)
    order = np.concatenate(order)
    restore = np.empty(len(order), np.int32)
    restore[order] = np.arange(len(order), dtype=np.int32)
    return parts, LoDArray(restore.reshape(-1, 1)), counts


distribute_fpn_proposals.with_room(roomy.distributed)


@op(
    out="FpnRois RoisNum?",
    slots={"numbers": "MultiLevelRoIsNum"},
    diff="",
    lod=None,
    kind="host",
    moves="late",
    infer=_regions,
    newer="numbers rois_num",
)
def collect_fpn_proposals(
    multi_level_rois: list[Value], multi_level_scores: list[Value], numbers: list[Value] = (), *, post_nms_topN: int
):
    """The ``post_nms_topN`` highest-scoring regions over all levels, image by image. Runs on the host.

    In Paddle 2, MultiLevelRoIsNum may replace the LoDs, and RoisNum [N] holds the counts of the result.
    """
    pairs = [host(by_image(r, n)) for r, n in zip_longest(multi_level_rois, numbers)]
    rois = np.concatenate([r for r, _ in pairs])
    scores = np.concatenate([host(s)[0].reshape(-1) for s in multi_level_scores])
    image = np.concatenate([np.searchsorted(off[1:], np.arange(len(r)), side="right") for r, off in pairs])
    best = np.argsort(-scores, kind="stable")[:post_nms_topN]
    best = best[np.argsort(image[best], kind="stable")]
    counts = np.bincount(image[best], minlength=len(pairs[0][1]) - 1).astype(np.int32)
    return LoDArray(rois[best], (_split(counts),)), counts


@collect_fpn_proposals.fits
def _(multi_level_rois, multi_level_scores):
    for name, levels, width in (("MultiLevelRois", multi_level_rois, 4), ("MultiLevelScores", multi_level_scores, 1)):
        for level in levels:
            fitting.rank(name, level, 2)
            fitting.dim(name, level, 1, width)


collect_fpn_proposals.with_room(roomy.collected)
