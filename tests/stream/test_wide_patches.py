"""Images of any size as sequences of patches, and text that is read off them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers
from fluidjax.layer_helper import LayerHelper
from tests.stream.test_wide import Feed, compare
from tests.stream.test_wide_images import image, images
from tests.stream.test_wide_sizes import equal_to_exact_sizes

pytestmark = pytest.mark.usefixtures("compiled_quickly")

B, CLASSES, H = 2, 6, 4
SIZES = ((12, 16), (16, 24), (12, 20))
WINDOWS = {"kernels": [3, 2], "strides": [2, 2], "paddings": [1, 0, 2, 1]}


def patches_of(x: Any) -> Any:
    """The op on float64, which the layer refuses."""
    helper = LayerHelper("im2sequence", input=x)
    out = helper.create_variable_for_type_inference(x.dtype)
    helper.append_op(type="im2sequence", inputs={"X": x}, outputs={"Out": out}, attrs=WINDOWS)
    return out


def test_patches_of_images_of_any_size(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    def build() -> Sequence[Any]:
        patches = patches_of(layers.conv2d(image(), 3, 3, 1, 1))
        last = layers.sequence_pool(layers.fc(patches, H, act="tanh"), "last")
        return [layers.mean(layers.square(last)), *(layers.sequence_pool(patches, how) for how in ("sum", "last"))]

    equal_to_exact_sizes(monkeypatch, build, images(rng, SIZES), 2)


# --- text is read off images ---------------------------------------------------------------------------------------


def encoded() -> Any:
    """What both directions of a recurrence make of the columns of images."""
    x = fluid.data("image", [None, 1, 8, None], "float32")
    x = layers.batch_norm(layers.conv2d(x, 3, 3, padding=1, bias_attr=False), act="relu")
    x = layers.pool2d(x, 2, "max", 2, ceil_mode=True)
    columns = layers.im2sequence(x, stride=[1, 1], filter_size=[x.shape[2], 1])
    return [layers.dynamic_gru(layers.fc(columns, 3 * H), H, is_reverse=turned) for turned in (False, True)]


def read_off() -> Sequence[Any]:
    """Labels by CTC."""
    label = fluid.data("label", [None, 1], "int32", lod_level=1)
    scores = layers.fc(encoded(), CLASSES + 1)
    loss = layers.reduce_sum(layers.warpctc(scores, label, blank=CLASSES, norm_by_times=True))
    return [loss, layers.sequence_pool(scores, "max")]


def texts(rng: np.random.Generator, widths: Sequence[int]) -> list[Feed]:
    found: list[Feed] = []
    for width in widths:
        lengths = rng.integers(1, 3, B).tolist()
        label = rng.integers(0, CLASSES, (sum(lengths), 1)).astype("int32")
        label = fluid.create_lod_tensor(label, [lengths], fluid.CPUPlace())
        found.append({"image": rng.normal(size=(B, 1, 8, width)).astype(np.float32), "label": label})
    return found


def test_text_in_images_of_any_width(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    compare(monkeypatch, read_off, texts(rng, (16, 24, 20)), 2)
