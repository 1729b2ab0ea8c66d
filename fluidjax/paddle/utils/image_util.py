"""Pictures as arrays, channel first, for scripts of the time before ``paddle.dataset.image``.

Reading and resizing require Pillow (``pip install pillow``); the rest requires only NumPy. A colour picture is
[3, height, width], a grey one [height, width]; ``oversample`` takes [height, width, channels].
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from fluidjax.base.errors import ArgumentError, explain
from fluidjax.base.optional import optional

__all__ = [
    "ImageTransformer",
    "crop_img",
    "decode_jpeg",
    "flip",
    "load_image",
    "load_meta",
    "oversample",
    "preprocess_img",
    "resize_image",
]


def _pillow() -> Any:
    return optional("PIL.Image", "paddle.utils.image_util needs Pillow to read and resize pictures", "pillow")


def resize_image(img: Any, target_size: int) -> Any:
    """A Pillow image resized such that its shorter side is ``target_size``."""
    scale = target_size / min(img.size)
    width, height = (round(side * scale) for side in img.size)
    return img.resize((width, height), _pillow().LANCZOS)


def flip(im: np.ndarray) -> np.ndarray:
    """The picture mirrored left to right."""
    return im[..., ::-1]


def crop_img(im: np.ndarray, inner_size: int, color: bool = True, test: bool = True) -> np.ndarray:
    """A square of side ``inner_size``, float64; smaller pictures are first set into the middle of zeros.

    With ``test`` it is the middle; else NumPy draws its place, and whether it is mirrored.
    """
    _check_kind("crop_img", im, color)
    height, width = im.shape[-2:]
    tall, wide = max(height, inner_size), max(width, inner_size)
    top, left = (tall - height) // 2, (wide - width) // 2
    padded = np.zeros((*im.shape[:-2], tall, wide))
    padded[..., top : top + height, left : left + width] = im
    if test:
        return _square(padded, (tall - inner_size) // 2, (wide - inner_size) // 2, inner_size)
    top, left = np.random.randint(0, tall - inner_size + 1), np.random.randint(0, wide - inner_size + 1)
    cut = _square(padded, top, left, inner_size)
    return flip(cut) if np.random.randint(2) == 0 else cut


def _square(im: np.ndarray, top: int, left: int, side: int) -> np.ndarray:
    return im[..., top : top + side, left : left + side]


def _check_kind(function: str, im: np.ndarray, color: bool) -> None:
    expected = "[3, height, width]" if color else "[height, width]"
    if im.ndim != (3 if color else 2) or (color and len(im) != 3):
        raise ArgumentError(
            explain(
                f"{function}: the picture has the wrong shape", expected, str(list(im.shape)), "set color= to match"
            )
        )


def decode_jpeg(jpeg_string: bytes) -> np.ndarray:
    """The picture in the bytes of a file, uint8, channel first."""
    pixels = np.array(_pillow().open(io.BytesIO(jpeg_string)))
    return np.transpose(pixels, (2, 0, 1)) if pixels.ndim == 3 else pixels


def preprocess_img(
    im: np.ndarray, img_mean: np.ndarray, crop_size: int, is_train: bool, color: bool = True
) -> np.ndarray:
    """``crop_img`` (the middle unless ``is_train``) minus the mean picture, as a vector."""
    return (crop_img(im.astype("float32"), crop_size, color, not is_train) - img_mean).flatten()


def load_meta(meta_path: str, mean_img_size: int, crop_size: int, color: bool = True) -> np.ndarray:
    """The middle ``crop_size`` square of the mean picture in a file of ``numpy.savez``, by name ``data_mean``, float32.

    Raises ValueError unless it has as many elements as a picture of side ``mean_img_size``.
    """
    mean = np.load(meta_path)["data_mean"]
    shape = (3, mean_img_size, mean_img_size) if color else (mean_img_size, mean_img_size)
    if mean.size != np.prod(shape):
        raise ArgumentError(
            explain(
                f"load_meta: data_mean of {meta_path} is another picture",
                f"{np.prod(shape)} elements, for {list(shape)}",
                f"{mean.size} elements",
                "pass the mean_img_size and color that it was made with",
            )
        )
    border = (mean_img_size - crop_size) // 2
    return _square(mean.reshape(shape), border, border, crop_size).astype("float32")


def load_image(img_path: str, is_color: bool = True) -> Any:
    """The Pillow image in a file, read whole."""
    image = _pillow().open(img_path)
    image.load()
    return image


def oversample(img: Sequence[np.ndarray], crop_dims: Sequence[int]) -> np.ndarray:
    """Ten crops of each picture: four corners and the middle, then the same five mirrored.

    Args:
        img: pictures of one shape, [height, width, channels].
        crop_dims: height and width of a crop.

    Returns: float32 [10 * len(img), *crop_dims, channels].
    """
    (height, width), (tall, wide) = img[0].shape[:2], (int(side) for side in crop_dims)
    tops, lefts = (0, height - tall), (0, width - wide)
    places = [(top, left) for top in tops for left in lefts] + [(int(tops[1] / 2), int(lefts[1] / 2))]
    crops = [[im[top : top + tall, left : left + wide] for top, left in places] for im in img]
    each = np.asarray(crops, "float32")
    return np.concatenate([each, each[:, :, :, ::-1]], axis=1).reshape(-1, tall, wide, each.shape[-1])


class ImageTransformer:
    """Reorders a picture's axes and channels and subtracts a mean: ``transformer(data)``.

    Args:
        transpose: order of the axes.
        channel_swap: order of the channels, which come first then.
        mean: a number for each channel, or a picture.
        is_color: whether pictures have three axes.
    """

    def __init__(
        self,
        transpose: Sequence[int] | None = None,
        channel_swap: Sequence[int] | None = None,
        mean: np.ndarray | None = None,
        is_color: bool = True,
    ) -> None:
        self.is_color = is_color
        self.set_transpose(transpose)
        self.set_channel_swap(channel_swap)
        self.set_mean(mean)

    def set_transpose(self, order: Sequence[int] | None) -> None:
        """Set the order of the axes; None leaves them."""
        self.transpose = self._of_three("set_transpose", order)

    def set_channel_swap(self, order: Sequence[int] | None) -> None:
        """Set the order of the channels; None leaves them."""
        self.channel_swap = self._of_three("set_channel_swap", order)

    def set_mean(self, mean: np.ndarray | None) -> None:
        """Set what is subtracted: a vector with a number for each channel, or a picture; None subtracts nothing."""
        if mean is not None and mean.ndim == 1:
            mean = mean[:, np.newaxis, np.newaxis]
        if mean is not None and self.is_color and mean.ndim != 3:
            raise AssertionError(
                f"ImageTransformer.set_mean: expected a vector or a colour picture, received {list(mean.shape)}. "
                "Pass is_color=False for grey pictures."
            )
        self.mean = mean

    def transformer(self, data: np.ndarray) -> np.ndarray:
        """The picture with its axes and channels reordered, minus the mean."""
        if self.transpose is not None:
            data = data.transpose(self.transpose)
        if self.channel_swap is not None:
            data = data[list(self.channel_swap)]
        return data if self.mean is None else data - self.mean

    def _of_three(self, setter: str, order: Sequence[int] | None) -> Sequence[int] | None:
        if order is not None and self.is_color and len(order) != 3:
            raise AssertionError(
                f"ImageTransformer.{setter}: expected three axes, received {list(order)}. Pass is_color=False for "
                "grey pictures."
            )
        return order
