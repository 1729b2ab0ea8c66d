# ruff: noqa: F403  (the names of fluid.layers.detection are gathered here)
"""Layers of object detectors."""

from fluidjax.base.unknown import unknown_name
from fluidjax.layers._detection import boxes as detection_boxes
from fluidjax.layers._detection import match as detection_match
from fluidjax.layers._detection import retinanet as detection_retinanet
from fluidjax.layers._detection import ssd as detection_ssd
from fluidjax.layers._detection import targets as detection_targets
from fluidjax.layers._detection import yolo as detection_yolo
from fluidjax.layers._detection.boxes import *
from fluidjax.layers._detection.map import *
from fluidjax.layers._detection.match import *
from fluidjax.layers._detection.regions import roi_perspective_transform
from fluidjax.layers._detection.retinanet import *
from fluidjax.layers._detection.ssd import *
from fluidjax.layers._detection.targets import *
from fluidjax.layers._detection.yolo import *

__all__ = [
    *detection_boxes.__all__,
    *detection_match.__all__,
    *detection_retinanet.__all__,
    *detection_ssd.__all__,
    *detection_targets.__all__,
    *detection_yolo.__all__,
    "roi_perspective_transform",
]

__getattr__ = unknown_name(__name__)
