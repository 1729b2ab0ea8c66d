"""Windows with strides over dims that change, what has the size that they leave, and sizes less than a dim."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers
from tests.stream.test_wide import Feed, train
from tests.stream.test_wide_sizes import LENGTHS, B, D, both, equal_to_exact_sizes, feeds_of, rows_of, size

pytestmark = pytest.mark.usefixtures("compiled_quickly")

LONG = (9, 16, 24, 21, 22, 12)


def convolved(x: Any, filters: int, stride: int, mask: Any) -> Any:
    """Masked and normalised windows along the last dim, of size 3 and padded by 2."""
    found = layers.conv2d(x, filters, (3, 5), (2, stride), (1, 2), bias_attr=False)
    return layers.elementwise_mul(layers.batch_norm(found, act="brelu"), mask)


def heard() -> Sequence[Any]:
    """Speech: two convolutions, the first with a stride, masks as wide as it leaves, and then rows of sequences."""
    sound, mask = fluid.data("x", [None, 7, None], "float64"), fluid.data("mask", [None, 4, 4, None], "float64")
    found = convolved(layers.unsqueeze(sound, [1]), 4, 3, mask)
    found = convolved(found, 4, 1, layers.slice(mask, axes=[2], starts=[0], ends=[2]))
    rows = layers.reshape(layers.transpose(found, [0, 3, 1, 2]), [0, -1, 8])
    rows = layers.sequence_unpad(rows, fluid.data("length", [None], "int64"))
    return [layers.mean(layers.square(layers.fc(rows, D))), found, layers.sequence_pool(rows, "sum")]


def sounds(rng: np.random.Generator, lengths: Sequence[int], more: int = 0) -> list[Feed]:
    found: list[Feed] = []
    for n in lengths:
        left = (n - 1) // 3 + 1 + more
        sizes = rng.integers(1, left + 1, B)
        mask = np.broadcast_to(np.arange(left) < sizes[:, None, None, None], (B, 4, 4, left)).astype(np.float64)
        found.append({"x": rng.normal(size=(B, 7, n)), "mask": mask, "length": sizes})
    return found


def test_speech(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    equal_to_exact_sizes(monkeypatch, heard, sounds(rng, LONG), 2)


def test_a_mask_of_another_size_is_refused_as_without_room(rng: np.random.Generator) -> None:
    """Also where both have the same room."""
    with pytest.raises(fluid.core.EnforceNotMet, match="elementwise_mul"):
        train(heard, [*sounds(rng, LONG[:3]), *sounds(rng, LONG[3:], more=1)])


def pooled(kind: str, **options: Any) -> Callable[[], Sequence[Any]]:
    def build() -> Sequence[Any]:
        _, rows = rows_of()
        images = layers.unsqueeze(layers.transpose(rows, [0, 2, 1]), [1])
        found = layers.pool2d(images, [2, 3], kind, [2, 2], **options)
        found = layers.pool2d(found, [1, 2], "max", [1, 2])
        return [layers.mean(layers.square(found)), found]

    return build


@pytest.mark.parametrize(
    "build",
    [pooled("max", pool_padding=[0, 1]), pooled("avg"), pooled("max", ceil_mode=True)],
    ids=["max", "avg", "ceil"],
)
def test_pools(build: Callable[[], Sequence[Any]], rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    equal_to_exact_sizes(monkeypatch, build, feeds_of(rng, LONG), 2)


# --- sizes that are less than a dim -----------------------------------------------------------------------------------


def shifted() -> Sequence[Any]:
    """Each place and the one after it, cut by sizes."""
    x, rows = rows_of()
    one, n = layers.fill_constant([1], "int32", 1), size(x)
    before, after = rows[:, 0 : n - 1, :], rows[:, one:n, :]
    last = rows[:, n - 1, :]
    return [layers.mean(layers.square(before * after)) + layers.mean(last), before, last]


def lessened() -> Sequence[Any]:
    """Numbers in a row, and a constant, of a place less."""
    x, rows = rows_of()
    n = size(x)
    fill = layers.fill_constant([B, n - 1, D], "float64", 2.0)
    places = layers.cast(layers.range(0, n - 1, 1, "int64"), "float64")
    moved = layers.elementwise_mul(rows[:, 1:] * fill, places, axis=1)
    return [layers.mean(layers.square(moved)), moved]


def targets() -> Sequence[Any]:
    """What is fed beside has a place less than the rows."""
    (_, rows), y = rows_of(), fluid.data("y", [None, None, D], "float64")
    return [layers.mean(layers.square(rows[:, :-1] - y)), y]


@pytest.mark.parametrize("build", [shifted, lessened], ids=lambda f: f.__name__)
def test_a_size_less_than_a_dim(
    build: Callable[[], Sequence[Any]], rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    equal_to_exact_sizes(monkeypatch, build, feeds_of(rng, LENGTHS), 2)


def test_nothing_of_a_dim_is_exact(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    def build() -> Sequence[Any]:
        x, rows = rows_of()
        fill = layers.fill_constant([B, size(x) - 1, D], "float64", 2.0)
        return [layers.mean(rows) + layers.reduce_sum(fill), fill]

    both(monkeypatch, build, feeds_of(rng, (3, 5, 1, 4)))


def test_what_is_fed_beside_has_a_place_less(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    feeds = [{**feed, "y": rng.normal(size=(B, feed["x"].shape[1] - 1, D))} for feed in feeds_of(rng, LENGTHS)]
    equal_to_exact_sizes(monkeypatch, targets, feeds, 2)


# --- images of any size ---------------------------------------------------------------------------------------------


def normalised(x: Any, filters: int, size: int, stride: int = 1, groups: int = 1) -> Any:
    found = layers.conv2d(x, filters, size, stride, (size - 1) // 2, groups=groups, bias_attr=False)
    return layers.hard_swish(layers.batch_norm(found))


def squeezed(x: Any) -> Any:
    """Channels weighed by what all places have of them."""
    pooled = layers.pool2d(x, pool_type="avg", global_pooling=True)
    return layers.elementwise_mul(x, layers.hard_sigmoid(layers.conv2d(pooled, 4, 1)))


def segmented() -> Sequence[Any]:
    """Text on images: smaller ones of more channels, enlarged again beside the larger ones, to the first size."""
    image, wanted = (fluid.data(name, [None, 1, None, None], "float64") for name in ("image", "wanted"))
    half = squeezed(normalised(image, 4, 3, 2))
    quarter = normalised(normalised(half, 4, 3, 2, groups=4), 4, 1)
    joined = layers.elementwise_add(layers.resize_nearest(quarter, scale=2, align_corners=False), half)
    joined = layers.concat([joined, half], 1)
    found = layers.sigmoid(layers.conv2d_transpose(joined, 1, filter_size=2, stride=2))
    both = layers.reduce_sum(found * wanted)
    loss = 1 - 2 * both / (layers.reduce_sum(found) + layers.reduce_sum(wanted))
    return [layers.reduce_mean(loss), found]


def images(rng: np.random.Generator, sizes: Sequence[tuple[int, int]]) -> list[Feed]:
    found: list[Feed] = []
    for height, width in sizes:
        shape = 2, 1, height, width
        found.append({"image": rng.normal(size=shape), "wanted": (rng.random(shape) < 0.3).astype(np.float64)})
    return found


def test_images_of_any_size(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [(16, 24), (20, 24), (20, 32), (24, 16), (16, 28), (12, 20)]
    equal_to_exact_sizes(monkeypatch, segmented, images(rng, sizes), 3)


def test_images_that_cannot_be_halved_are_refused_as_without_room(rng: np.random.Generator) -> None:
    with pytest.raises(fluid.core.EnforceNotMet, match="elementwise_add"):
        train(segmented, images(rng, [(16, 24), (20, 32), (24, 18)]))
