"""The Penn Treebank as prepared by Mikolov: one sentence per line, for language models.

Words are ``bytes`` and the markers '<s>', '<e>', '<unk>' are ``str``, as in Fluid under Python 3; so the corpus's
own b'<unk>' is a word like any other.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from fluidjax.paddle.dataset import archives, common

__all__ = ["train", "test", "build_dict"]

URL = "https://dataset.bj.bcebos.com/imikolov%2Fsimple-examples.tgz"
MD5 = "30177ea32e27c525793142b6bf2c8e2d"
TRAIN_FILE = "./simple-examples/data/ptb.train.txt"
TEST_FILE = "./simple-examples/data/ptb.valid.txt"

Reader = Callable[[], Iterator[tuple[Any, ...]]]


class DataType:
    """The type of a sample: ``n`` consecutive words, or a sentence and the same shifted by one."""

    NGRAM = 1
    SEQ = 2


def word_count(f: Iterable[bytes], word_freq: dict[Any, int] | None = None) -> dict[Any, int]:
    """Count the words in the lines; each line also counts as one '<s>' and one '<e>'."""
    counts = defaultdict(int) if word_freq is None else word_freq
    for line in f:
        for word in [*line.split(), "<s>", "<e>"]:
            counts[word] += 1
    return counts


def _lines(filename: str) -> Iterator[bytes]:
    with archives.tar(common.download(URL, "imikolov", MD5)) as archive:
        file = archive.extractfile(filename)
        if file is not None:
            yield from file


def build_dict(min_word_freq: int = 50) -> dict[Any, int]:
    """Numbers for the words that occur more than ``min_word_freq`` times, most frequent first; '<unk>' comes last."""
    counts = Counter(word_count(_lines(TEST_FILE), word_count(_lines(TRAIN_FILE))))
    counts.pop("<unk>", None)
    words = [word for word, count in counts.items() if count > min_word_freq]
    words.sort(key=lambda w: (-counts[w], w if isinstance(w, bytes) else w.encode()))
    return {word: index for index, word in enumerate([*words, "<unk>"])}


def reader_creator(filename: str, word_idx: Mapping[Any, int], n: int, data_type: int) -> Reader:
    """A reader of n-grams (tuples of n ids), or of (sentence, next words) with at most n words if n > 0."""

    def numbers(words: Iterable[Any]) -> list[int]:
        return [word_idx.get(word, word_idx["<unk>"]) for word in words]

    def ngrams(words: list[bytes]) -> Iterator[tuple[int, ...]]:
        if n < 0:
            raise AssertionError(f"Invalid gram length: expected n of zero or more, received {n}; pass n")
        line = numbers(["<s>", *words, "<e>"])
        for end in range(n, len(line) + 1):
            yield tuple(line[end - n : end])

    def sequence(words: list[bytes]) -> Iterator[tuple[list[int], list[int]]]:
        line = numbers(words)
        if n <= 0 or len(line) + 1 <= n:
            yield [word_idx["<s>"], *line], [*line, word_idx["<e>"]]

    def reader() -> Iterator[tuple[Any, ...]]:
        if data_type not in (DataType.NGRAM, DataType.SEQ):
            raise AssertionError(f"Unknown data type {data_type}; pass DataType.NGRAM or DataType.SEQ")
        samples = ngrams if data_type == DataType.NGRAM else sequence
        for line in _lines(filename):
            yield from samples(line.split())

    return reader


def train(word_idx: Mapping[Any, int], n: int, data_type: int = DataType.NGRAM) -> Reader:
    """Training samples; ``n`` is the n-gram length, or the maximum sentence length."""
    return reader_creator(TRAIN_FILE, word_idx, n, data_type)


def test(word_idx: Mapping[Any, int], n: int, data_type: int = DataType.NGRAM) -> Reader:
    """Validation samples; ``n`` is the n-gram length, or the maximum sentence length."""
    return reader_creator(TEST_FILE, word_idx, n, data_type)


def fetch() -> None:
    """Download the archive."""
    common.download(URL, "imikolov", MD5)
