"""Oxford's 102 categories of flowers. Reading the images requires OpenCV."""

from __future__ import annotations

import functools
import os
import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from fluidjax.paddle.dataset import archives, image, matlab
from fluidjax.paddle.dataset.common import download
from fluidjax.paddle.reader import map_readers, xmap_readers

__all__ = ["train", "test", "valid"]

DATA_URL = "http://paddlemodels.bj.bcebos.com/flowers/102flowers.tgz"
LABEL_URL = "http://paddlemodels.bj.bcebos.com/flowers/imagelabels.mat"
SETID_URL = "http://paddlemodels.bj.bcebos.com/flowers/setid.mat"
DATA_MD5 = "52808999861908f626f3c1f4e79d11fa"
LABEL_MD5 = "e0620be6f572b9609742df49c70aed4d"
SETID_MD5 = "a5357ecc9cb78c4bef273ce3793fc85c"
# Fluid trains on the larger part, which the data set itself calls its test set.
TRAIN_FLAG = "tstid"
TEST_FLAG = "trnid"
VALID_FLAG = "valid"

Mapper = Callable[[Any], Any]
Reader = Callable[[], Iterable[Any]]


def default_mapper(is_train: bool, sample: tuple[bytes, int]) -> tuple[np.ndarray, int]:
    """Convert (JPEG bytes, label) to (float32 [3 * 224 * 224], label)."""
    data, label = sample
    picture = image.load_image_bytes(data)
    picture = image.simple_transform(picture, 256, 224, is_train, mean=[103.94, 116.78, 123.68])
    return picture.flatten().astype(np.float32), label


train_mapper = functools.partial(default_mapper, True)
test_mapper = functools.partial(default_mapper, False)


def _row(path: str, key: str) -> np.ndarray:
    with archives.sound(path):
        return matlab.load(path)[key][0]


def reader_creator(
    data_file: str,
    label_file: str,
    setid_file: str,
    dataset_name: str,
    mapper: Mapper,
    buffered_size: int = 1024,
    use_xmap: bool = True,
    cycle: bool = False,
) -> Reader:
    """A reader of ``mapper((JPEG bytes, label))`` over one split of the archive; labels start at 0."""
    labels = _row(label_file, "labels")
    numbers = _row(setid_file, dataset_name)
    with archives.sound(setid_file):
        names = {f"jpg/image_{i:05d}.jpg": int(labels[i - 1]) for i in numbers}
    file_list = image.batch_images_from_tar(data_file, dataset_name, names)

    def one_pass() -> Iterator[tuple[bytes, int]]:
        with open(file_list) as paths:
            for path in paths:
                with open(path.strip(), "rb") as file:  # our own pickle, written by batch_images_from_tar
                    batch = pickle.load(file)
                for sample, label in zip(batch["data"], batch["label"], strict=True):
                    yield sample, label - 1

    def reader() -> Iterator[tuple[bytes, int]]:
        yield from one_pass()
        while cycle:
            yield from one_pass()

    if use_xmap:
        return xmap_readers(mapper, reader, min(4, os.cpu_count() or 1), buffered_size)
    return map_readers(mapper, reader)


def _part(name: str, mapper: Mapper, buffered_size: int, use_xmap: bool, cycle: bool = False) -> Reader:
    data, labels, sets = (
        download(url, "flowers", md5)
        for url, md5 in ((DATA_URL, DATA_MD5), (LABEL_URL, LABEL_MD5), (SETID_URL, SETID_MD5))
    )
    return reader_creator(data, labels, sets, name, mapper, buffered_size, use_xmap, cycle=cycle)


def train(
    mapper: Mapper = train_mapper, buffered_size: int = 1024, use_xmap: bool = True, cycle: bool = False
) -> Reader:
    """6,149 training images."""
    return _part(TRAIN_FLAG, mapper, buffered_size, use_xmap, cycle)


def test(mapper: Mapper = test_mapper, buffered_size: int = 1024, use_xmap: bool = True, cycle: bool = False) -> Reader:
    """1,020 test images."""
    return _part(TEST_FLAG, mapper, buffered_size, use_xmap, cycle)


def valid(mapper: Mapper = test_mapper, buffered_size: int = 1024, use_xmap: bool = True) -> Reader:
    """1,020 validation images."""
    return _part(VALID_FLAG, mapper, buffered_size, use_xmap)


def fetch() -> None:
    """Download all files."""
    download(DATA_URL, "flowers", DATA_MD5)
    download(LABEL_URL, "flowers", LABEL_MD5)
    download(SETID_URL, "flowers", SETID_MD5)
