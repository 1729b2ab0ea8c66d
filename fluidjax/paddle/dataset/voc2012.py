"""Pascal VOC 2012, segmentation: images and the class of each pixel. Reading them requires Pillow."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fluidjax.base.optional import optional
from fluidjax.paddle.dataset import archives
from fluidjax.paddle.dataset.common import download

__all__ = ["train", "test", "val"]

VOC_URL = "http://host.robots.ox.ac.uk/pascal/VOC/voc2012/VOCtrainval_11-May-2012.tar"
VOC_MD5 = "6cd6e144f989b92b3379bac3b3de84fd"
SET_FILE = "VOCdevkit/VOC2012/ImageSets/Segmentation/{}.txt"
DATA_FILE = "VOCdevkit/VOC2012/JPEGImages/{}.jpg"
LABEL_FILE = "VOCdevkit/VOC2012/SegmentationClass/{}.png"
CACHE_DIR = "voc2012"
MAX_PIXELS = 1 << 24  # pictures here have 500 x 500

Reader = Callable[[], Iterator[tuple[np.ndarray, np.ndarray]]]


def _pillow() -> Any:
    return optional("PIL.Image", "paddle.dataset.voc2012 needs Pillow to read pictures", "pillow")


def _pixels(pillow: Any, data: bytes) -> np.ndarray:
    """The pixels of an image. Raises FileFormatError (for the archive) if its declared size is implausibly large."""
    try:
        with pillow.open(io.BytesIO(data)) as picture:
            if picture.width * picture.height > MAX_PIXELS:
                raise ValueError(f"a picture of {picture.width} x {picture.height} pixels")
            return np.array(picture)
    except (SyntaxError, pillow.DecompressionBombError, pillow.DecompressionBombWarning) as error:
        raise ValueError(f"a damaged picture: {error}") from error


def reader_creator(filename: str, sub_name: str) -> Reader:
    """A reader of (uint8 [height, width, 3], uint8 [height, width]) over the images listed in a split."""
    pillow = _pillow()

    def reader() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        with archives.tar(filename) as archive:

            def member(name: str) -> bytes:
                file = archive.extractfile(name)
                return file.read() if file else b""

            for name in member(SET_FILE.format(sub_name)).decode().split():
                picture, label = (member(pattern.format(name)) for pattern in (DATA_FILE, LABEL_FILE))
                yield _pixels(pillow, picture), _pixels(pillow, label)

    return reader


def train() -> Reader:
    """2,913 training images."""
    return reader_creator(download(VOC_URL, CACHE_DIR, VOC_MD5), "trainval")


def test() -> Reader:
    """1,464 test images."""
    return reader_creator(download(VOC_URL, CACHE_DIR, VOC_MD5), "train")


def val() -> Reader:
    """1,449 validation images."""
    return reader_creator(download(VOC_URL, CACHE_DIR, VOC_MD5), "val")
