"""CIFAR-10 and CIFAR-100: colour images of 32 x 32 pixels."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from fluidjax.files import pickles
from fluidjax.paddle.dataset import archives, common

__all__ = ["train100", "test100", "train10", "test10"]

URL_PREFIX = "https://dataset.bj.bcebos.com/cifar/"
CIFAR10_URL = URL_PREFIX + "cifar-10-python.tar.gz"
CIFAR10_MD5 = "c58f30108f718f92721af3b95e74349a"
CIFAR100_URL = URL_PREFIX + "cifar-100-python.tar.gz"
CIFAR100_MD5 = "eb9058c3a382ffc7106e4002c42a8d85"

Reader = Callable[[], Iterator[tuple[np.ndarray, int]]]


def reader_creator(filename: str, sub_name: str, cycle: bool = False) -> Reader:
    """A reader of (float32 [3072] in [0, 1], label) from the members whose name contains ``sub_name``.

    With ``cycle``, it never ends.
    """

    def one_pass() -> Iterator[tuple[np.ndarray, int]]:
        with archives.tar(filename) as archive:
            for member in archive:
                file = archive.extractfile(member) if sub_name in member.name else None
                if file is None:
                    continue
                batch = pickles.loads(file.read(), f"{filename}: {member.name}")
                labels = batch["labels"] if "labels" in batch else batch["fine_labels"]
                for sample, label in zip(batch["data"], labels, strict=False):
                    yield (sample / 255.0).astype(np.float32), int(label)

    def reader() -> Iterator[tuple[np.ndarray, int]]:
        yield from one_pass()
        while cycle:
            yield from one_pass()

    return reader


def train100() -> Reader:
    """CIFAR-100's training set; labels 0 to 99."""
    return reader_creator(common.download(CIFAR100_URL, "cifar", CIFAR100_MD5), "train")


def test100() -> Reader:
    """CIFAR-100's test set; labels 0 to 99."""
    return reader_creator(common.download(CIFAR100_URL, "cifar", CIFAR100_MD5), "test")


def train10(cycle: bool = False) -> Reader:
    """CIFAR-10's training set; labels 0 to 9."""
    return reader_creator(common.download(CIFAR10_URL, "cifar", CIFAR10_MD5), "data_batch", cycle=cycle)


def test10(cycle: bool = False) -> Reader:
    """CIFAR-10's test set; labels 0 to 9."""
    return reader_creator(common.download(CIFAR10_URL, "cifar", CIFAR10_MD5), "test_batch", cycle=cycle)


def fetch() -> None:
    """Download both archives."""
    common.download(CIFAR10_URL, "cifar", CIFAR10_MD5)
    common.download(CIFAR100_URL, "cifar", CIFAR100_MD5)
