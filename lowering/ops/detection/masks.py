"""generate_mask_labels: training masks for Mask R-CNN. A host op: the number of regions varies."""

from __future__ import annotations

import numpy as np

from lowering.dtypes import INT32
from lowering.ops.detection.pixel_boxes import images, joined, pairwise
from lowering.ops.detection.polygon import polygon_mask
from lowering.program import VarInfo
from lowering.registry import Value, op
from lowering.values import LoDArray, data_of, exact

Polygons = list[np.ndarray]  # of one object, each [k, 2]


def _infer(op_view, var_of):
    """Fluid declares no LoD for what is sampled of each image."""
    rois = var_of(op_view.inputs["Rois"][0])
    resolution, classes = op_view.attrs["resolution"], op_view.attrs["num_classes"]
    return {
        op_view.outputs["MaskRois"][0]: VarInfo((-1, 4), rois.dtype if rois is not None else None, 0),
        op_view.outputs["RoiHasMaskInt32"][0]: VarInfo((-1, 1), INT32, 0),
        op_view.outputs["MaskInt32"][0]: VarInfo((-1, classes * resolution**2), INT32, 0),
    }


def _objects(segments: LoDArray) -> list[list[Polygons]]:
    """The polygons of each object of each image; LoD levels are image, object, polygon."""
    of_image, of_object, of_polygon = (np.asarray(level) for level in segments.lod)
    points = np.asarray(segments.data).reshape(-1, 2)
    polygons = [points[a:b] for a, b in zip(of_polygon[:-1], of_polygon[1:], strict=True)]
    objects = [polygons[a:b] for a, b in zip(of_object[:-1], of_object[1:], strict=True)]
    return [objects[a:b] for a, b in zip(of_image[:-1], of_image[1:], strict=True)]


def _bounds(polygons: Polygons) -> np.ndarray:
    points = np.concatenate(polygons)
    return np.concatenate([points.min(axis=0), points.max(axis=0)])


def _within(polygons: Polygons, box: np.ndarray, resolution: int) -> np.ndarray:
    """int32 [resolution^2]: the union of the polygons, relative to the box."""
    size = np.maximum(box[2:] - box[:2], 1)
    masks = [polygon_mask((p - box[:2]) * resolution / size, resolution, resolution) for p in polygons]
    return np.any(masks, axis=0).astype(np.int32).reshape(-1)


def _one_image(objects: list[Polygons], rois, labels, scale: float, resolution: int, classes: int):
    """(rows of the regions, masks [k, classes * resolution^2]); -1 marks irrelevant entries."""
    size = resolution**2
    chosen = np.flatnonzero(labels > 0)
    if not len(chosen) or not objects:
        return np.flatnonzero(labels == 0)[:1], np.full((1, classes * size), -1, np.int32)
    boxes = rois[chosen] / scale
    nearest = pairwise(boxes, np.stack([_bounds(polygons) for polygons in objects])).argmax(axis=1)
    masks = np.full((len(chosen), classes, size), -1, np.int32)
    for i, (box, which, label) in enumerate(zip(boxes, nearest, labels[chosen], strict=True)):
        masks[i, label] = _within(objects[which], box, resolution)
    return chosen, masks.reshape(len(chosen), -1)


@op(out="MaskRois RoiHasMaskInt32 MaskInt32", diff="", lod=None, kind="host", moves="late", infer=_infer)
def generate_mask_labels(
    im_info: Value,
    gt_classes: Value,
    is_crowd: Value,
    gt_segms: Value,
    rois: Value,
    labels_int32: Value,
    *,
    num_classes: int,
    resolution: int,
):
    """For each foreground region, the mask of the object closest to it, relative to the region.

    GtSegms [P, 2]: points of polygons, LoD by image, object and polygon; Rois [R, 4] with LabelsInt32 [R, 1], GtClasses
    [G] and IsCrowd [G] with one level; ImInfo [N, 3]. MaskRois [K, 4]; RoiHasMaskInt32 [K, 1], their rows within the
    image; MaskInt32 [K, num_classes * resolution^2], 0 or 1 at the class and -1 elsewhere. An image without such a
    region yields its first background region, all -1. Runs on the host.
    """
    info = np.asarray(data_of(exact(im_info)))
    each = (images(v) for v in (gt_classes, is_crowd, rois, labels_int32))
    boxes, rows, masks = [], [], []
    for i, (kinds, crowd, regions, labels) in enumerate(zip(*each, strict=True)):
        usable = np.flatnonzero((kinds.reshape(-1) > 0) & (crowd.reshape(-1) == 0))
        objects = _objects(exact(gt_segms))[i]
        found = [objects[k] for k in usable]
        chosen, mask = _one_image(found, regions, labels.reshape(-1), info[i, 2], resolution, num_classes)
        boxes.append(regions[chosen])
        rows.append(chosen[:, None])
        masks.append(mask)
    return joined(boxes), joined(rows, np.int32), joined(masks)
