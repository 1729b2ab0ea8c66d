"""Film reviews of NLTK's corpus: negative (label 0) and positive (label 1), alternating.

The archive is read directly; NLTK is not required.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from fluidjax.paddle.dataset import archives, common

__all__ = ["train", "test", "get_word_dict"]

URL = "https://corpora.bj.bcebos.com/movie_reviews%2Fmovie_reviews.zip"
MD5 = "155de2b77c6834dd8eea7cbe88e93acb"
NUM_TRAINING_INSTANCES = 1600
NUM_TOTAL_INSTANCES = 2000

_WORD = re.compile(r"\w+|[^\w\s]+")  # how NLTK's corpus reader cuts text into words and runs of punctuation


def download_data_if_not_yet() -> str:
    """The path of the archive in the cache."""
    return common.download(URL, "corpora", MD5, "movie_reviews.zip")


@functools.lru_cache(maxsize=1)
def _corpus(path: str) -> dict[str, list[str]]:
    """The words of each review, by name."""
    with archives.zipped(path) as archive:
        names = sorted(name for name in archive.namelist() if name.endswith(".txt"))
        return {
            name.split("movie_reviews/", 1)[-1]: _WORD.findall(archive.read(name).decode("utf-8", "replace"))
            for name in names
        }


def get_word_dict() -> list[tuple[str, int]]:
    """(word, number) pairs, most frequent word first."""
    counts = Counter(word for words in _corpus(download_data_if_not_yet()).values() for word in words)
    return [(word, index) for index, (word, _) in enumerate(counts.most_common())]


def sort_files() -> list[str]:
    """The names of the reviews, alternately negative and positive."""
    names = _corpus(download_data_if_not_yet())
    negative, positive = ([n for n in names if n.startswith(kind)] for kind in ("neg/", "pos/"))
    return [name for pair in zip(negative, positive, strict=False) for name in pair]


def load_sentiment_data() -> list[tuple[list[int], int]]:
    """All samples: (word ids, label)."""
    path = download_data_if_not_yet()
    corpus, numbers = _corpus(path), dict(get_word_dict())
    with archives.sound(path):  # whose words are in lower case
        return [([numbers[word.lower()] for word in corpus[name]], int("neg" not in name)) for name in sort_files()]


def reader_creator(data: Any) -> Iterator[tuple[list[int], int]]:
    """An iterator over samples (rather than a reader, as in Fluid)."""
    yield from data


def train() -> Iterator[tuple[list[int], int]]:
    """The first 1,600 samples."""
    return reader_creator(load_sentiment_data()[:NUM_TRAINING_INSTANCES])


def test() -> Iterator[tuple[list[int], int]]:
    """The other 400 samples."""
    return reader_creator(load_sentiment_data()[NUM_TRAINING_INSTANCES:])


def fetch() -> None:
    """Download the archive."""
    download_data_if_not_yet()
