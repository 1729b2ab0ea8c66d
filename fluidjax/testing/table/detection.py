"""Regions of interest that are no rectangles."""

import numpy as np

from fluidjax.testing.case import case, normal
from lowering.values import LoDArray

# Corners (x, y) clockwise from the upper left; one region in the first image and one in the second.
_QUADS = LoDArray(
    np.array([[1.0, 1.0, 9.0, 2.0, 10.0, 9.0, 2.0, 8.0], [3.0, 0.5, 10.0, 0.5, 10.0, 10.5, 3.0, 10.5]]),
    (np.array([0, 1, 2], np.int32),),
)

CASES = [
    case(
        "roi_perspective_transform",
        {"X": normal(2, 3, 6, 6), "ROIs": _QUADS},
        {"spatial_scale": 0.5, "transformed_height": 3, "transformed_width": 4},
    ),
]
