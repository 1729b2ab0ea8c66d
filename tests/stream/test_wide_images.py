"""Images of any size in networks that paint or segment: normalised one by one, padded by themselves, resized."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers
from tests.stream.test_wide import Feed
from tests.stream.test_wide_sizes import both, equal_to_exact_sizes

pytestmark = pytest.mark.usefixtures("compiled_quickly")

SIZES = ((12, 16), (16, 16), (16, 24), (20, 12), (12, 20), (8, 16))


def image(name: str = "image") -> Any:
    """A feed [N, 2, h, w] with room for gradients."""
    x = fluid.data(name, [None, 2, None, None], "float64")
    x.stop_gradient = False
    return x


def images(rng: np.random.Generator, sizes: Sequence[tuple[int, int]]) -> list[Feed]:
    return [{"image": rng.normal(size=(2, 2, *size))} for size in sizes]


def painted() -> Sequence[Any]:
    """Reflected edges, instances normalised, smaller and as large again, beside what it was."""
    x = image()
    found = layers.conv2d(layers.pad2d(x, [3, 3, 3, 3], mode="reflect"), 4, 7, bias_attr=False)
    found = layers.relu(layers.instance_norm(found))
    half = layers.relu(layers.instance_norm(layers.conv2d(found, 4, 3, 2, 1, bias_attr=False)))
    block = layers.pad2d(half, [1, 1, 1, 1], mode="edge")
    half = half + layers.instance_norm(layers.conv2d(block, 4, 3, bias_attr=False))
    whole = layers.conv2d_transpose(half, 4, filter_size=3, stride=2, padding=1, bias_attr=False)
    whole = layers.relu(layers.instance_norm(layers.pad2d(whole, [0, 1, 0, 1])))
    drawn = layers.tanh(layers.conv2d(layers.pad2d(whole, [1, 1, 1, 1], mode="reflect"), 2, 3))
    return [layers.reduce_mean(layers.abs(drawn - x)), drawn]


def segmented(resize: Callable[..., Any], **form: Any) -> Callable[[], Sequence[Any]]:
    """All places beside their mean, as large as these; then as large as the image."""

    def build() -> Sequence[Any]:
        x = image()
        small = layers.group_norm(layers.conv2d(x, 4, 3, 4, 1, bias_attr=False), 2, act="swish")
        mean = layers.reduce_mean(small, [2, 3], keep_dim=True)
        mean = resize(layers.conv2d(mean, 4, 1), layers.shape(small)[2:], **form)
        joined = layers.concat([small, mean], 1)
        half = layers.conv2d(x, 4, 3, 2, 1)
        joined = layers.concat([resize(joined, layers.shape(half)[2:], **form), half], 1)
        found = resize(layers.conv2d(joined, 3, 1), layers.shape(x)[2:], **form)
        return [layers.mean(layers.square(found)), found]

    return build


def scaled() -> Sequence[Any]:
    """Twice as large, by either way to count edges."""
    x = image()
    found = layers.resize_bilinear(layers.conv2d(x, 3, 3, 1, 1), scale=2)
    found = found + layers.resize_bilinear(layers.conv2d(x, 3, 3, 1, 1), scale=2, align_corners=False, align_mode=0)
    return [layers.mean(layers.square(found)), found]


def pyramid() -> Sequence[Any]:
    """Half as large, with the means of 1, 4 and 9 parts of it beside, as in PSPNet; then averaged as in ResNet-D."""
    x = layers.conv2d(layers.resize_bilinear(image(), scale=0.5), 4, 3, 1, 1)
    parts = [layers.conv2d(layers.adaptive_pool2d(x, [n, n], "avg"), 2, 1) for n in (1, 2, 3)]
    joined = layers.concat([x, *(layers.resize_bilinear(part, layers.shape(x)[2:]) for part in parts)], 1)
    short = layers.conv2d(layers.pool2d(joined, 2, "avg", 2, ceil_mode=True), 4, 1)
    found = layers.relu(short + layers.conv2d(joined, 4, 3, 2, 1))
    return [layers.mean(layers.square(found)), found, *parts]


def placed() -> Sequence[Any]:
    """Where each column and row is, from -1 to 1, as channels beside the others (CoordConv)."""
    x = image()
    batch, height, width = (layers.shape(x)[dim] for dim in (0, 2, 3))
    columns = layers.unsqueeze(layers.linspace(-1, 1, width, "float64"), [0, 1, 2])
    rows = layers.unsqueeze(layers.linspace(-1, 1, height, "float64"), [0, 1, 3])
    places = [layers.expand(columns, [batch, 1, height, 1]), layers.expand(rows, [batch, 1, 1, width])]
    found = layers.conv2d(layers.concat([x, *places], 1), 3, 3, 1, 1)
    return [layers.mean(layers.square(found)), found, *places]


def hardest() -> Sequence[Any]:
    """The places with the largest losses, of all in an image; and the peaks of each channel."""
    found = layers.conv2d(image(), 3, 3, 1, 1)
    losses, places = layers.topk(layers.reshape(layers.square(found), [2, -1]), 5)
    peaks, _ = layers.topk(layers.reshape(found, [0, 3, -1]), 2)
    best = layers.argmax(layers.reshape(found, [0, 3, -1]), 2)
    return [layers.mean(losses) + layers.mean(layers.square(peaks)), losses, places, best]


def same() -> Sequence[Any]:
    """As many windows as strides fit, which begin before the image or not, as its size has it; and none beyond it."""
    found = layers.conv2d(image(), 4, 3, 2, "SAME", bias_attr=False)
    found = layers.elementwise_add(found, layers.conv2d(found, 4, 4, 1, "SAME", groups=4))
    found = layers.conv2d(layers.pool2d(found, 3, "max", 2, "SAME"), 4, 5, 2, "SAME")
    whole = layers.pool2d(layers.conv2d(image("other"), 2, 2, 1, "VALID"), 2, "avg", 2, "VALID")
    return [layers.mean(layers.square(found)) + layers.mean(layers.square(whole)), found, whole]


def test_windows_of_the_same_number(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = ((13, 16), (16, 15), (14, 18), (15, 13), (9, 10), (17, 14))
    feeds = [{**feed, "other": rng.normal(size=feed["image"].shape)} for feed in images(rng, sizes)]
    equal_to_exact_sizes(monkeypatch, same, feeds, 3)


FORMS = {
    "painted": painted,
    "bilinear": segmented(layers.resize_bilinear),
    "half pixels": segmented(layers.resize_bilinear, align_corners=False, align_mode=0),
    "nearest": segmented(layers.resize_nearest),
    "scaled": scaled,
    "pyramid": pyramid,
    "hardest": hardest,
    "placed": placed,
}


@pytest.mark.parametrize("build", FORMS.values(), ids=FORMS)
def test_images_of_any_size(
    build: Callable[[], Sequence[Any]], rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    equal_to_exact_sizes(monkeypatch, build, images(rng, SIZES), 3)


def test_a_size_that_is_no_whole_multiple_is_exact(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    def build() -> Sequence[Any]:
        found = layers.resize_bilinear(layers.conv2d(image(), 3, 3, 1, 1), scale=0.3)
        return [layers.mean(layers.square(found)), found]

    both(monkeypatch, build, images(rng, SIZES))


def test_an_image_smaller_than_its_reflected_edge_is_exact(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build() -> Sequence[Any]:
        found = layers.conv2d(layers.pad2d(image(), [3, 3, 3, 3], mode="reflect"), 2, 3)
        return [layers.mean(layers.square(found)), found]

    both(monkeypatch, build, images(rng, [*SIZES[:3], (3, 12), (12, 12)]))


POOLED: dict[str, Callable[..., Any]] = {
    "roi_pool": lambda x, rois: layers.roi_pool(x, rois, 2, 2, 0.5),
    "roi_align": lambda x, rois: layers.roi_align(x, rois, 2, 2, 0.5),
    "psroi_pool": lambda x, rois: layers.psroi_pool(x, rois, 1, 0.5, 2, 2),
}


@pytest.mark.parametrize("pool", POOLED.values(), ids=POOLED)
def test_regions_of_images_of_any_size(
    pool: Callable[..., Any], rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The numbers of regions change, too."""

    def build() -> Sequence[Any]:
        rois = fluid.data("rois", [None, 4], "float64", lod_level=1)
        found = pool(layers.conv2d(image(), 4, 3, 2, 1), rois)
        return [layers.mean(layers.square(found)), found]

    feeds = images(rng, SIZES)
    for feed, (height, width), counts in zip(
        feeds, SIZES, ([3, 2], [5, 1], [2, 4], [1, 1], [4, 4], [6, 3]), strict=True
    ):
        corners = np.sort(rng.uniform(-2, 2 + min(height, width), (sum(counts), 2, 2)), 1).reshape(-1, 4)
        feed["rois"] = fluid.create_lod_tensor(corners, [counts], fluid.CPUPlace())
    equal_to_exact_sizes(monkeypatch, build, feeds, 3)
