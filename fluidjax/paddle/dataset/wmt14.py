"""WMT 2014, English to French: sentences as word ids, with dictionaries of 30,000 words."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

from fluidjax.paddle.dataset import archives, common

__all__ = ["train", "test", "get_dict"]

URL_DEV_TEST = "http://www-lium.univ-lemans.fr/~schwenk/cslm_joint_paper/data/dev+test.tgz"
MD5_DEV_TEST = "7d7897317ddd8ba0ae5c5fa7248d3ff5"
URL_TRAIN = "http://paddlemodels.bj.bcebos.com/wmt/wmt14.tgz"
MD5_TRAIN = "0791583d57d5beb693b9414c5b36798c"
URL_MODEL = "http://paddlemodels.bj.bcebos.com/wmt%2Fwmt14.tgz"
MD5_MODEL = "0cb4a5366189b6acba876491c8724fa3"

START = "<s>"
END = "<e>"
UNK = "<unk>"
UNK_IDX = 2
MAX_WORDS = 80

Pair = tuple[list[int], list[int], list[int]]


def _lines(tar_file: str, suffix: str) -> Iterator[str]:
    with archives.tar(tar_file) as archive:
        for member in archive:
            file = archive.extractfile(member) if member.name.endswith(suffix) else None
            if file is not None:
                for line in file:
                    yield line.decode().strip()


def _dictionaries(tar_file: str, size: int) -> tuple[dict[str, int], dict[str, int]]:
    source, target = (
        {word: index for index, word in enumerate(itertools.islice(_lines(tar_file, name), size))}
        for name in ("src.dict", "trg.dict")
    )
    return source, target


def reader_creator(tar_file: str, file_name: str, dict_size: int) -> Callable[[], Iterator[Pair]]:
    """A reader of (source, target, target shifted by one) from the members whose name ends with ``file_name``.

    Pairs with more than 80 words on either side are skipped.
    """

    def reader() -> Iterator[Pair]:
        known, target_known = _dictionaries(tar_file, dict_size)
        with archives.sound(tar_file):
            start, end = target_known[START], target_known[END]
        for line in _lines(tar_file, file_name):
            parts = line.split("\t")
            if len(parts) != 2:
                continue
            source = [known.get(word, UNK_IDX) for word in [START, *parts[0].split(), END]]
            target = [target_known.get(word, UNK_IDX) for word in parts[1].split()]
            if len(source) <= MAX_WORDS and len(target) <= MAX_WORDS:
                yield source, [start, *target], [*target, end]

    return reader


def _part(name: str, dict_size: int) -> Callable[[], Iterator[Pair]]:
    return reader_creator(common.download(URL_TRAIN, "wmt14", MD5_TRAIN), name, dict_size)


def train(dict_size: int) -> Callable[[], Iterator[Pair]]:
    """The training set, with the ``dict_size`` most frequent words."""
    return _part("train/train", dict_size)


def test(dict_size: int) -> Callable[[], Iterator[Pair]]:
    """The test set, with the ``dict_size`` most frequent words."""
    return _part("test/test", dict_size)


def gen(dict_size: int) -> Callable[[], Iterator[Pair]]:
    """The generation set, with the ``dict_size`` most frequent words."""
    return _part("gen/gen", dict_size)


def get_dict(dict_size: int, reverse: bool = True) -> tuple[dict, dict]:
    """The source and target dictionaries: from ids to words, or from words to ids if not ``reverse``."""
    found = _dictionaries(common.download(URL_TRAIN, "wmt14", MD5_TRAIN), dict_size)
    if not reverse:
        return found
    source, target = ({number: word for word, number in known.items()} for known in found)
    return source, target


def fetch() -> None:
    """Download the corpus and the model."""
    common.download(URL_TRAIN, "wmt14", MD5_TRAIN)
    common.download(URL_MODEL, "wmt14", MD5_MODEL)
