# ruff: noqa: F403  (the names of fluid.layers.detection are gathered here)
"""Layers of object detectors."""

from fluidjax.layers import detection_boxes, detection_match, detection_ssd, detection_targets
from fluidjax.layers.detection_boxes import *
from fluidjax.layers.detection_map import *
from fluidjax.layers.detection_match import *
from fluidjax.layers.detection_regions import roi_perspective_transform
from fluidjax.layers.detection_ssd import *
from fluidjax.layers.detection_targets import *

__all__ = [
    *detection_boxes.__all__,
    *detection_match.__all__,
    *detection_ssd.__all__,
    *detection_targets.__all__,
    "roi_perspective_transform",
]
