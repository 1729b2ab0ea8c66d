"""IMDB: film reviews, positive (label 0) and negative (label 1).

Words are ``bytes`` and the unknown word is the ``str`` '<unk>', as in Fluid under Python 3.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fluidjax.paddle.dataset import archives, common

__all__ = ["build_dict", "train", "test"]

URL = "https://dataset.bj.bcebos.com/imdb%2FaclImdb_v1.tar.gz"
MD5 = "7c2ac02c03563afcf9b574c7e56c153a"

Reader = Callable[[], Iterator[tuple[list[int], int]]]


def tokenize(pattern: re.Pattern[str]) -> Iterator[list[bytes]]:
    """The words of each review whose path matches: lower case, without punctuation."""
    with archives.tar(common.download(URL, "imdb", MD5)) as archive:
        for member in archive:
            file = archive.extractfile(member) if pattern.match(member.name) else None
            if file is not None:
                text = file.read().rstrip(b"\n\r").translate(None, string.punctuation.encode())
                yield text.lower().split()


def build_dict(pattern: re.Pattern[str], cutoff: int) -> dict[Any, int]:
    """Numbers for the words that occur more than ``cutoff`` times, most frequent first; '<unk>' comes last."""
    counts = Counter(word for review in tokenize(pattern) for word in review)
    words: list[Any] = sorted((w for w, n in counts.items() if n > cutoff), key=lambda w: (-counts[w], w))
    return {word: index for index, word in enumerate([*words, "<unk>"])}


def reader_creator(pos_pattern: re.Pattern[str], neg_pattern: re.Pattern[str], word_idx: Mapping[Any, int]) -> Reader:
    """A reader of (word ids, label): all reviews matching the first pattern, then all matching the second."""
    unknown = word_idx["<unk>"]
    samples = [
        ([word_idx.get(word, unknown) for word in review], label)
        for label, pattern in enumerate((pos_pattern, neg_pattern))
        for review in tokenize(pattern)
    ]

    def reader() -> Iterator[tuple[list[int], int]]:
        yield from samples

    return reader


def _part(name: str, word_idx: Mapping[Any, int]) -> Reader:
    positive, negative = (re.compile(rf"aclImdb/{name}/{kind}/.*\.txt$") for kind in ("pos", "neg"))
    return reader_creator(positive, negative, word_idx)


def train(word_idx: Mapping[Any, int]) -> Reader:
    """25,000 training reviews as (word ids, label)."""
    return _part("train", word_idx)


def test(word_idx: Mapping[Any, int]) -> Reader:
    """25,000 test reviews as (word ids, label)."""
    return _part("test", word_idx)


def word_dict() -> dict[Any, int]:
    """Numbers for the words that occur more than 150 times in all reviews."""
    return build_dict(re.compile(r"aclImdb/((train)|(test))/((pos)|(neg))/.*\.txt$"), 150)


def fetch() -> None:
    """Download the archive."""
    common.download(URL, "imdb", MD5)
