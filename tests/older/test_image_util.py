"""``paddle.utils.image_util``: pictures as arrays, held against sums and pictures of Paddle 1.8.5 where that runs."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from fluidjax.paddle.utils import image_util

SQUARE = np.arange(108, dtype="float32").reshape(3, 6, 6)


def test_ten_crops() -> None:
    picture = np.arange(189, dtype="float32").reshape(7, 9, 3)
    crops = image_util.oversample([picture, picture], np.array([4, 4]))
    assert crops.shape == (20, 4, 4, 3) and crops.dtype == np.float32
    sums = [2208, 2928, 6096, 6816, 3792]
    np.testing.assert_array_equal(crops.sum(axis=(1, 2, 3)), sums * 4)
    np.testing.assert_array_equal(crops[5], crops[0, :, ::-1])


def test_a_transformer_reorders_and_subtracts() -> None:
    rule = image_util.ImageTransformer((2, 0, 1), (2, 1, 0), np.array([1.0, 2.0, 3.0]))
    expected = [[[1, 4], [7, 10]], [[-1, 2], [5, 8]], [[-3, 0], [3, 6]]]
    np.testing.assert_array_equal(rule.transformer(np.arange(12.0).reshape(2, 2, 3)), expected)
    for wrong in ({"transpose": (0, 1)}, {"channel_swap": (0, 1)}, {"mean": np.ones((2, 2))}):
        with pytest.raises(AssertionError, match="is_color=False"):
            image_util.ImageTransformer(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("color", [True, False])
def test_the_middle_is_cut_or_padded(color: bool) -> None:
    picture = SQUARE if color else SQUARE[0]
    np.testing.assert_array_equal(image_util.crop_img(picture, 4, color), picture[..., 1:5, 1:5])
    np.testing.assert_array_equal(image_util.crop_img(picture, 8, color)[..., 1:7, 1:7], picture)
    assert image_util.crop_img(picture, 8, color).sum() == picture.sum()
    with pytest.raises(ValueError, match="wrong shape"):
        image_util.crop_img(picture, 4, not color)


def test_a_drawn_crop_is_a_part_of_the_picture() -> None:
    np.random.seed(3)
    whole = {tuple(image_util.flip(SQUARE)[0, :, x]) for x in range(6)}
    seen = set()
    for _ in range(20):
        cut = image_util.crop_img(SQUARE, 6, True, test=False)
        assert {tuple(cut[0, :, x]) for x in range(6)} == whole
        seen.add(cut[0, 0, 0])
    assert seen == {0.0, 5.0}  # mirrored or not
    assert image_util.preprocess_img(SQUARE, np.float32(1), 4, True).shape == (48,)


def test_a_mean_picture(tmp_path: Path) -> None:
    path = str(tmp_path / "mean.npz")
    np.savez(path, data_mean=np.arange(108))
    np.testing.assert_array_equal(image_util.load_meta(path, 6, 4), SQUARE[:, 1:5, 1:5])
    with pytest.raises(ValueError, match="108 elements"):
        image_util.load_meta(path, 6, 4, color=False)


def test_pictures_are_read_and_resized(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    pixels = np.zeros((8, 12, 3), "uint8")
    pixels[..., 0] = 200
    buffer = io.BytesIO()
    image.fromarray(pixels).save(buffer, format="PNG")
    np.testing.assert_array_equal(image_util.decode_jpeg(buffer.getvalue()), pixels.transpose(2, 0, 1))
    (tmp_path / "a.png").write_bytes(buffer.getvalue())
    assert image_util.resize_image(image_util.load_image(str(tmp_path / "a.png")), 4).size == (6, 4)
