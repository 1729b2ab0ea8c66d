"""MNIST: handwritten digits, 28 x 28 pixels."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import numpy as np

from fluidjax.paddle.dataset import archives, common

__all__ = ["train", "test"]

URL_PREFIX = "https://dataset.bj.bcebos.com/mnist/"
TEST_IMAGE_URL = URL_PREFIX + "t10k-images-idx3-ubyte.gz"
TEST_IMAGE_MD5 = "9fb629c4189551a2d022fa330f9573f3"
TEST_LABEL_URL = URL_PREFIX + "t10k-labels-idx1-ubyte.gz"
TEST_LABEL_MD5 = "ec29112dd5afa0611ce80d1b7f02629c"
TRAIN_IMAGE_URL = URL_PREFIX + "train-images-idx3-ubyte.gz"
TRAIN_IMAGE_MD5 = "f68b3c2dcbeaaa9fbdd348bbdeb94873"
TRAIN_LABEL_URL = URL_PREFIX + "train-labels-idx1-ubyte.gz"
TRAIN_LABEL_MD5 = "d53e105ee54ea40749a09fcbcd1e9432"

Reader = Callable[[], Iterator[tuple[np.ndarray, int]]]


def reader_creator(image_filename: str, label_filename: str, buffer_size: int) -> Reader:
    """A reader of (float32 [784] in [-1, 1], label) from gzipped IDX files, rescaled in blocks of ``buffer_size``."""

    def reader() -> Iterator[tuple[np.ndarray, int]]:
        with archives.gzipped(image_filename) as file:
            data = file.read()
            _, count, rows, cols = struct.unpack_from(">IIII", data)
            pixels = np.frombuffer(data, np.uint8, count * rows * cols, offset=16).reshape(count, rows * cols)
        with archives.gzipped(label_filename) as file:
            labels = np.frombuffer(file.read(), np.uint8, count, offset=8)
        for start in range(0, len(labels), buffer_size):
            images = pixels[start : start + buffer_size].astype(np.float32) / 255.0 * 2.0 - 1.0
            for image, label in zip(images, labels[start : start + buffer_size], strict=True):
                yield image, int(label)

    return reader


def train() -> Reader:
    """60,000 training digits."""
    return reader_creator(
        common.download(TRAIN_IMAGE_URL, "mnist", TRAIN_IMAGE_MD5),
        common.download(TRAIN_LABEL_URL, "mnist", TRAIN_LABEL_MD5),
        100,
    )


def test() -> Reader:
    """10,000 test digits."""
    return reader_creator(
        common.download(TEST_IMAGE_URL, "mnist", TEST_IMAGE_MD5),
        common.download(TEST_LABEL_URL, "mnist", TEST_LABEL_MD5),
        100,
    )


def fetch() -> None:
    """Download all files."""
    train()
    test()
