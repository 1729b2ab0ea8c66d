"""CoNLL 2005, semantic role labelling: who did what to whom. Only the test set is free, so it is used for training."""

from __future__ import annotations

import gzip
import tarfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fluidjax.paddle.dataset import archives, common

__all__ = ["test", "get_dict", "get_embedding"]

DATA_URL = "http://paddlemodels.bj.bcebos.com/conll05st/conll05st-tests.tar.gz"
DATA_MD5 = "387719152ae52d60422c016e92a742fc"
WORDDICT_URL = "http://paddlemodels.bj.bcebos.com/conll05st%2FwordDict.txt"
WORDDICT_MD5 = "ea7fb7d4c75cc6254716f0177a506baa"
VERBDICT_URL = "http://paddlemodels.bj.bcebos.com/conll05st%2FverbDict.txt"
VERBDICT_MD5 = "0d2977293bbb6cbefab5b0f97db1e77c"
TRGDICT_URL = "http://paddlemodels.bj.bcebos.com/conll05st%2FtargetDict.txt"
TRGDICT_MD5 = "d8c7f03ceb5fc2e5a0fa7503a4353751"
EMB_URL = "http://paddlemodels.bj.bcebos.com/conll05st%2Femb"
EMB_MD5 = "bf436eb0faa1f6f9103017f8be57cdb7"

UNK_IDX = 0

Sentence = tuple[list[str], str, list[str]]  # words, predicate, one label for each word


def load_label_dict(filename: str) -> dict[str, int]:
    """Numbers for the labels: B- and I- of each tag, with sorted tags (in Fluid, in arbitrary order), then O."""
    with archives.sound(filename), open(filename) as file:
        tags = sorted({line.strip()[2:] for line in file if line.strip()[:2] in ("B-", "I-")})
    labels = [mark + tag for tag in tags for mark in ("B-", "I-")]
    return {label: index for index, label in enumerate([*labels, "O"])}


def load_dict(filename: str) -> dict[str, int]:
    """Numbers for the lines of a file."""
    with archives.sound(filename), open(filename) as file:
        return {line.strip(): index for index, line in enumerate(file)}


def corpus_reader(data_path: str, words_name: str, props_name: str) -> Callable[[], Iterator[Sentence]]:
    """A reader of (words, predicate, labels): each sentence once per predicate."""

    def reader() -> Iterator[Sentence]:
        with archives.tar(data_path) as archive:
            words: list[str] = []
            columns: list[list[str]] = []
            for word, props in zip(_lines(archive, words_name), _lines(archive, props_name), strict=False):
                if props.split():
                    words.append(word.strip())
                    columns.append(props.split())
                else:
                    yield from _by_predicate(words, columns)
                    words, columns = [], []

    return reader


def _lines(archive: tarfile.TarFile, name: str) -> Iterator[str]:
    file = archive.extractfile(name)
    if file is None:
        raise FileNotFoundError(f"{name} is no file of the archive; fetch the archive again")
    room = archives.MAX_RATIO * archive.getmember(name).size + archives.ROOM
    with archives.Bounded(gzip.open(file), name, room) as lines:
        for line in lines:
            yield line.decode()


def _by_predicate(words: list[str], columns: list[list[str]]) -> Iterator[Sentence]:
    if not columns:
        return
    predicates, *spans = zip(*columns, strict=True)
    for verb, span in zip([p for p in predicates if p != "-"], spans, strict=False):
        yield words, verb, _labels(span)


def _labels(span: tuple[str, ...]) -> list[str]:
    """Convert bracket notation, as in ``(A0*  *  *)``, to B-A0 I-A0 I-A0."""
    labels, tag, inside = [], "O", False
    for mark in span:
        if "(" in mark:
            tag = mark[1 : mark.find("*")]
            labels.append("B-" + tag)
            inside = ")" not in mark
        elif mark == "*":
            labels.append("I-" + tag if inside else "O")
        elif mark == "*)":
            labels.append("I-" + tag)
            inside = False
        else:
            raise RuntimeError(
                f"Unexpected label: {mark}; expected '*', '*)' or '(TAG*'; the corpus is not in CoNLL 2005's format"
            )
    return labels


def reader_creator(
    corpus_reader: Callable[[], Iterator[Sentence]],
    word_dict: Mapping[str, int] | None = None,
    predicate_dict: Mapping[str, int] | None = None,
    label_dict: Mapping[str, int] | None = None,
) -> Callable[[], Iterator[tuple[list[Any], ...]]]:
    """A reader of nine lists, each as long as the sentence; raises FileFormatError for one without a predicate.

    These are: words; the words two before, one before, at, one after and two after the predicate (repeated);
    the predicate (repeated); marks of those five words; labels.
    """
    known, verbs, tags = word_dict or {}, predicate_dict or {}, label_dict or {}

    def reader() -> Iterator[tuple[list[Any], ...]]:
        for words, verb, labels in corpus_reader():
            with archives.sound("a sentence of CoNLL 2005"):
                size, at = len(words), labels.index("B-V")
            near = range(at - 2, at + 3)
            context = [words[i] if 0 <= i < size else ("bos" if i < 0 else "eos") for i in near]
            yield (
                [known.get(word, UNK_IDX) for word in words],
                *([known.get(word, UNK_IDX)] * size for word in context),
                [verbs.get(verb)] * size,
                [int(i in near) for i in range(size)],
                [tags.get(label) for label in labels],
            )

    return reader


def get_dict() -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
    """Dictionaries of words, verbs and labels."""
    return (
        load_dict(common.download(WORDDICT_URL, "conll05st", WORDDICT_MD5)),
        load_dict(common.download(VERBDICT_URL, "conll05st", VERBDICT_MD5)),
        load_label_dict(common.download(TRGDICT_URL, "conll05st", TRGDICT_MD5)),
    )


def get_embedding() -> str:
    """The path of word embeddings trained on Wikipedia."""
    return common.download(EMB_URL, "conll05st", EMB_MD5)


def test() -> Callable[[], Iterator[tuple[list[Any], ...]]]:
    """A reader over the test set; see ``reader_creator`` for its samples."""
    corpus = corpus_reader(
        common.download(DATA_URL, "conll05st", DATA_MD5),
        words_name="conll05st-release/test.wsj/words/test.wsj.words.gz",
        props_name="conll05st-release/test.wsj/props/test.wsj.props.gz",
    )
    return reader_creator(corpus, *get_dict())


def fetch() -> None:
    """Download all files."""
    get_dict()
    get_embedding()
    common.download(DATA_URL, "conll05st", DATA_MD5)
