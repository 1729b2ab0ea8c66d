"""Images resized by the layers of Fluid; numbers of the real Paddle 1.8.5."""

from __future__ import annotations

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers

IMAGE = (np.arange(12, dtype=np.float32) ** 2).reshape(1, 1, 3, 4)
CORNERS = [[0, 0.45703125, 2.125, 5.44921875, 9], [64, 75.14453125, 90.125, 106.76171875, 121]]
MIDDLES = [
    [1.783727169, 3.262963772, 6.359375, 11.321788788, 15.928013802],
    [52.747787476, 62.914558411, 77.515625, 93.982727051, 107.276420593],
]


def test_interpolate_is_image_resize_that_knows_bicubic() -> None:
    with fluid.program_guard(fluid.Program()), fluid.unique_name.guard():
        image, width = fluid.data("image", [1, 1, 3, 4]), fluid.data("width", [1], "int32")
        fetches = [
            layers.interpolate(image, [2, 5], resample="BICUBIC"),
            layers.interpolate(image, [2, width], resample="BICUBIC"),
            layers.interpolate(image, [2, 5], resample="BICUBIC", align_corners=False),
            layers.interpolate(image, [2, 5], resample="NEAREST"),
            layers.image_resize(image, [2, 5], resample="NEAREST"),
        ]
        cubic, sized, middles, *nearest = fluid.Executor(fluid.CPUPlace()).run(
            feed={"image": IMAGE, "width": np.array([5], np.int32)}, fetch_list=fetches
        )
        np.testing.assert_allclose(cubic[0, 0], CORNERS, rtol=1e-6)
        np.testing.assert_allclose(sized[0, 0], CORNERS, rtol=1e-6)
        np.testing.assert_allclose(middles[0, 0], MIDDLES, rtol=1e-6)
        np.testing.assert_array_equal(*nearest)
        with pytest.raises(ValueError, match="resample"):
            layers.image_resize(image, [2, 5], resample="BICUBIC")
        with pytest.raises(TypeError, match="align_corners"):
            layers.interpolate(image, [2, 5], resample="BICUBIC", align_corners=3)  # type: ignore[arg-type]
