"""WMT 2016 (Multi30K), English and German: sentences as word ids.

Dictionaries are built from the training set, and stored beside the archive.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator

from fluidjax.files import atomic
from fluidjax.paddle.dataset import archives, common

__all__ = ["train", "test", "validation", "fetch", "get_dict"]

DATA_URL = "http://paddlemodels.bj.bcebos.com/wmt/wmt16.tar.gz"
DATA_MD5 = "0c38be43600334966403524a40dcd81e"

TOTAL_EN_WORDS = 11250
TOTAL_DE_WORDS = 19220

START_MARK = "<s>"
END_MARK = "<e>"
UNK_MARK = "<unk>"

Pair = tuple[list[int], list[int], list[int]]
Reader = Callable[[], Iterator[Pair]]


def _pairs(tar_file: str, name: str) -> Iterator[list[str]]:
    """[English, German] for each line that has both."""
    with archives.tar(tar_file) as archive:
        file = archive.extractfile(name)
        if file is None:
            raise FileNotFoundError(f"{tar_file} has no {name}; fetch the archive again")
        for line in file:
            parts = line.decode().strip().split("\t")
            if len(parts) == 2:
                yield parts


def _dict_path(lang: str, dict_size: int) -> str:
    return os.path.join(common.DATA_HOME, "wmt16", f"{lang}_{dict_size}.dict")


def _load_dict(tar_file: str, dict_size: int, lang: str, reverse: bool = False) -> dict:
    path = _dict_path(lang, dict_size)
    words = _read_words(path)
    if len(words) != dict_size:
        counts = Counter(word for pair in _pairs(tar_file, "wmt16/train") for word in pair[lang != "en"].split())
        words = [START_MARK, END_MARK, UNK_MARK]
        words += [word for word, _ in counts.most_common()][: max(dict_size - 3, 0)]
        atomic.write_file(path, [("\n".join(words) + "\n").encode()])
    return dict(enumerate(words)) if reverse else {word: index for index, word in enumerate(words)}


def _read_words(path: str) -> list[str]:
    if not os.path.exists(path):
        return []
    with archives.sound(path), open(path, "rb") as file:
        return [line.decode().strip() for line in file]


def _size(lang: str, dict_size: int) -> int:
    return min(dict_size, TOTAL_EN_WORDS if lang == "en" else TOTAL_DE_WORDS)


def reader_creator(tar_file: str, file_name: str, src_dict_size: int, trg_dict_size: int, src_lang: str) -> Reader:
    """A reader of (source, target, target shifted by one); markers have the same ids in both languages."""

    def reader() -> Iterator[Pair]:
        known = _load_dict(tar_file, src_dict_size, src_lang)
        target_known = _load_dict(tar_file, trg_dict_size, "de" if src_lang == "en" else "en")
        with archives.sound(tar_file):
            start, end, unknown = (known[mark] for mark in (START_MARK, END_MARK, UNK_MARK))
        for pair in _pairs(tar_file, file_name):
            source, target = pair if src_lang == "en" else reversed(pair)
            words = [known.get(word, unknown) for word in source.split()]
            answer = [target_known.get(word, unknown) for word in target.split()]
            yield [start, *words, end], [start, *answer], [*answer, end]

    return reader


def _part(name: str, src_dict_size: int, trg_dict_size: int, src_lang: str) -> Reader:
    if src_lang not in ("en", "de"):
        raise ValueError(
            f"An error language type: received {src_lang!r}. Only support: en (for English); de (for Germany)."
        )
    return reader_creator(
        common.download(DATA_URL, "wmt16", DATA_MD5, "wmt16.tar.gz"),
        f"wmt16/{name}",
        _size(src_lang, src_dict_size),
        _size("de" if src_lang == "en" else "en", trg_dict_size),
        src_lang,
    )


def train(src_dict_size: int, trg_dict_size: int, src_lang: str = "en") -> Reader:
    """The training set; dictionary sizes include the three markers."""
    return _part("train", src_dict_size, trg_dict_size, src_lang)


def test(src_dict_size: int, trg_dict_size: int, src_lang: str = "en") -> Reader:
    """The test set; dictionary sizes include the three markers."""
    return _part("test", src_dict_size, trg_dict_size, src_lang)


def validation(src_dict_size: int, trg_dict_size: int, src_lang: str = "en") -> Reader:
    """The validation set; dictionary sizes include the three markers."""
    return _part("val", src_dict_size, trg_dict_size, src_lang)


def get_dict(lang: str, dict_size: int, reverse: bool = False) -> dict:
    """The dictionary of a language: from words to ids, or from ids to words if ``reverse``.

    Raises AssertionError unless a reader has created it before.
    """
    size = _size(lang, dict_size)
    if not os.path.exists(_dict_path(lang, size)):
        raise AssertionError(
            f"Word dictionary does not exist: expected {_dict_path(lang, size)}. Please invoke "
            "paddle.dataset.wmt16.train/test/validation first to build the dictionary."
        )
    return _load_dict(os.path.join(common.DATA_HOME, "wmt16", "wmt16.tar.gz"), size, lang, reverse)


def fetch() -> None:
    """Download the archive."""
    common.download(DATA_URL, "wmt16", DATA_MD5, "wmt16.tar.gz")
