"""Files of the other data sets, damaged: FileFormatError, or samples."""

import gzip
import io
import shutil
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from fluidjax.base.optional import optional
from fluidjax.files.errors import FileFormatError
from fluidjax.paddle.dataset import (
    common,
    conll05,
    flowers,
    imdb,
    imikolov,
    movielens,
    mq2007,
    sentiment,
    uci_housing,
    voc2012,
    wmt14,
    wmt16,
)
from tests.conftest import seed_of
from tests.fuzz.mutate import cases
from tests.fuzz.test_archives import packed

MARKS = b"<s>\n<e>\n<unk>\n"
BETWEEN = b"%%%"  # the members of an archive, as one content to be changed


class Target(NamedTuple):
    content: bytes
    wrap: Callable[[bytes], bytes]
    read: Callable[[str], Iterable[object]]


def members(pack: Callable[[dict[str, bytes]], bytes], *names: str) -> Callable[[bytes], bytes]:
    """Packs the parts of a content; what has no part is not in the archive."""
    return lambda content: pack(dict(zip(names, content.split(BETWEEN), strict=False)))


def tarred(files: dict[str, bytes]) -> bytes:
    return gzip.compress(packed(files), 1)


def zipped(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def gzipped_members(files: dict[str, bytes]) -> bytes:
    return tarred({name: gzip.compress(data, 1) for name, data in files.items()})


def matlab(**arrays: np.ndarray) -> bytes:
    out = io.BytesIO()
    optional("scipy.io", "this test", "scipy").savemat(out, arrays)
    return out.getvalue()


def picture(kind: str) -> bytes:
    out = io.BytesIO()
    image = optional("PIL.Image", "this test", "pillow").fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8))
    image.save(out, kind)
    return out.getvalue()


def ranked(score: int) -> bytes:
    return f"{score} qid:10 {' '.join(f'{i}:0.5' for i in range(1, 47))} #docid = {score}\n".encode()


def labels_of(path: str) -> list[int]:
    """The flowers of an archive, whose labels are in ``path``."""
    folder = Path(path).parent
    shutil.rmtree(folder / "flowers.tgz_batch", ignore_errors=True)
    (folder / "flowers.tgz").write_bytes(tarred({"jpg/image_00001.jpg": b"a", "jpg/image_00002.jpg": b"b"}))
    files = str(folder / "flowers.tgz"), path, path
    return [label for _, label in flowers.reader_creator(*files, "tstid", lambda sample: sample, use_xmap=False)()]


def houses(path: str) -> object:
    uci_housing.UCI_TRAIN_DATA = uci_housing.UCI_TEST_DATA = None
    return uci_housing.train()()


def films(path: str) -> object:
    movielens.MOVIE_INFO = None
    return movielens.train()()


def reviews(path: str) -> object:
    sentiment._corpus.cache_clear()
    return sentiment.train()


def roles(path: str) -> object:
    corpus = conll05.corpus_reader(path, "words.gz", "props.gz")
    return conll05.reader_creator(corpus, {"The": 0}, {"chase": 0}, {"O": 0})()


def translated(path: str) -> object:
    shutil.rmtree(Path(path).parent / "wmt16", ignore_errors=True)
    return wmt16.reader_creator(path, "wmt16/test", 5, 5, "en")()


def sentences(path: str) -> object:
    return imikolov.train(imikolov.build_dict(0), 2)()


IMDB = {"aclImdb/train/pos/0_9.txt": b"Good, good film!", "aclImdb/train/neg/0_1.txt": b"bad film"}
PENN = {imikolov.TRAIN_FILE: b" a b a \n a <unk> c \n", imikolov.TEST_FILE: b" b \n"}
WMT14 = {"src.dict": MARKS + b"hello\n", "trg.dict": MARKS + b"bonjour\n", "train/train": b"hello you\tbonjour\n"}
WMT16 = {"wmt16/train": b"a b a\tx y\nb a\ty\n", "wmt16/test": b"b\ty y\n"}
FILMS = b"1::Toy (1995)::Animation|Comedy\n" + BETWEEN + b"1::F::1::10::48067\n" + BETWEEN + b"1::1::5::978300760\n"
ROLES = b"The\ncat\nchased\n\n" + BETWEEN + b"-  (A0*\n-  *)\nchase (V*)\n\n"
SIDES = voc2012.DATA_FILE.format("a"), voc2012.LABEL_FILE.format("a")


def voc(content: bytes) -> bytes:
    pack = members(packed, *SIDES, voc2012.SET_FILE.format("train"))
    return pack(content + BETWEEN + b"a\n")


TARGETS = {
    "uci_housing": Target(b"\n".join(b"%d " % i + b" ".join([b"%d.5" % i] * 13) for i in range(4)), bytes, houses),
    "mq2007": Target(ranked(0) + ranked(2), bytes, lambda path: mq2007._reader(path)),
    "conll05": Target(ROLES, members(gzipped_members, "words.gz", "props.gz"), roles),
    "conll05's words": Target(b"UNK\nThe\ncat\n", bytes, conll05.load_dict),
    "conll05's labels": Target(b"B-V\nB-A0\nI-A0\nO\n", bytes, conll05.load_label_dict),
    "movielens": Target(FILMS, members(zipped, *(f"ml-1m/{n}.dat" for n in ("movies", "users", "ratings"))), films),
    "sentiment": Target(
        b"good film" + BETWEEN + b"bad .",
        members(zipped, "movie_reviews/pos/a.txt", "movie_reviews/neg/b.txt"),
        reviews,
    ),
    "imdb": Target(packed(IMDB), lambda c: gzip.compress(c, 1), lambda path: imdb.train({"<unk>": 0})()),
    "imikolov": Target(packed(PENN), lambda c: gzip.compress(c, 1), sentences),
    "wmt14": Target(packed(WMT14), lambda c: gzip.compress(c, 1), lambda path: wmt14.train(5)()),
    "wmt16": Target(packed(WMT16), lambda c: gzip.compress(c, 1), translated),
    "voc2012": Target(
        picture("JPEG") + BETWEEN + picture("PNG"), voc, lambda path: voc2012.reader_creator(path, "train")()
    ),
    "flowers": Target(matlab(labels=np.array([[3, 4]]), tstid=np.array([[1, 2]])), bytes, labels_of),
}

# What was found once: bytes that gave another error, or wrong samples without one.
SEEDS = [
    ("uci_housing", b"1 2 x 4"),
    ("uci_housing", b""),
    ("mq2007", ranked(0).replace(b"qid:10", b"qid-10")),
    ("conll05's words", b"\xff\xff"),
    ("wmt14", packed(WMT14 | {"trg.dict": b"a\nb\n"})),
    ("sentiment", b"Good film" + BETWEEN + b"bad ."),
    ("flowers", b""),
    ("movielens", FILMS.replace(b"1995", b"%%%")),
]


@pytest.fixture
def read(tmp_path, monkeypatch):
    """Writes a file of a data set and reads it; says whether it was sound."""
    path = tmp_path / "file"
    monkeypatch.setattr(common, "DATA_HOME", str(tmp_path))
    monkeypatch.setattr(common, "download", lambda *args, **kwargs: str(path))
    monkeypatch.setattr(mq2007, "_folder", lambda: str(tmp_path))
    for name in ("MOVIE_INFO", "USER_INFO", "MOVIE_TITLE_DICT", "CATEGORIES_DICT"):
        monkeypatch.setattr(movielens, name, None)
    for name in ("UCI_TRAIN_DATA", "UCI_TEST_DATA"):
        monkeypatch.setattr(uci_housing, name, None)

    def sound(target: Target, data: bytes) -> bool:
        path.write_bytes(data)
        try:
            list(target.read(str(path)))
        except FileFormatError:
            return False
        return True

    yield sound
    sentiment._corpus.cache_clear()


@pytest.mark.parametrize("name", TARGETS)
def test_damaged(read, name):
    target = TARGETS[name]
    assert read(target, target.wrap(target.content))
    for data in cases(target.content, seed_of(name), wrap=target.wrap):
        read(target, data)


@pytest.mark.parametrize(("name", "data"), SEEDS)
def test_found_before(read, name, data):
    assert not read(TARGETS[name], TARGETS[name].wrap(data))
