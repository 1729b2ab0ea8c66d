"""paddle.dataset: each parser on a tiny archive in the real one's format, and the cache that archives come from."""

import functools
import gzip
import io
import pickle
import re
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from fluidjax.paddle import dataset
from fluidjax.paddle.dataset import common


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, and a function that puts a file of a data set into it."""
    monkeypatch.setattr(common, "DATA_HOME", str(tmp_path))

    def put(module, folder, url, md5, data, name=None):
        path = tmp_path / folder / (name or getattr(module, url).split("/")[-1])
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        monkeypatch.setattr(module, md5, common.md5file(str(path)))
        return path

    return put


def tar(files, mode="w:gz"):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def zipped(files):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def test_mnist(cache, rng):
    pixels = rng.integers(0, 256, (250, 28, 28), np.uint8)
    labels = rng.integers(0, 10, 250, np.uint8)
    images = struct.pack(">IIII", 2051, 250, 28, 28) + pixels.tobytes()
    cache(dataset.mnist, "mnist", "TEST_IMAGE_URL", "TEST_IMAGE_MD5", gzip.compress(images))
    answers = gzip.compress(struct.pack(">II", 2049, 250) + labels.tobytes())
    cache(dataset.mnist, "mnist", "TEST_LABEL_URL", "TEST_LABEL_MD5", answers)
    samples = list(dataset.mnist.test()())
    assert [label for _, label in samples] == labels.tolist()
    got = np.stack([image for image, _ in samples])
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, pixels.reshape(250, 784) / 127.5 - 1, atol=1e-6)


def test_cifar(cache, rng):
    pixels = rng.integers(0, 256, (3, 3072), np.uint8)

    def batch(key, part):
        return pickle.dumps({"data": pixels[part], key: [int(i) for i in range(len(pixels[part]))]}, 2)

    files = {
        "cifar-10-batches-py/data_batch_1": batch("labels", slice(0, 2)),
        "cifar-10-batches-py/readme.html": b"",
        "cifar-10-batches-py/test_batch": batch("labels", slice(2, 3)),
    }
    cache(dataset.cifar, "cifar", "CIFAR10_URL", "CIFAR10_MD5", tar(files))
    samples = list(dataset.cifar.train10()())
    assert [label for _, label in samples] == [0, 1]
    np.testing.assert_array_equal(samples[1][0], (pixels[1] / 255.0).astype("f4"))
    assert len(list(dataset.cifar.test10()())) == 1
    endless = dataset.cifar.test10(cycle=True)()
    assert [label for _, label in zip(range(3), (s[1] for s in endless), strict=False)] == [0, 0, 0]
    files = {"cifar-100-python/train": batch("fine_labels", slice(0, 3))}
    cache(dataset.cifar, "cifar", "CIFAR100_URL", "CIFAR100_MD5", tar(files))
    assert [label for _, label in dataset.cifar.train100()()] == [0, 1, 2]


def test_uci_housing(cache, rng, monkeypatch):
    table = rng.uniform(0, 9, (10, 14))
    text = "\n".join(" ".join(f"{x:.3f}" for x in row) for row in table)
    cache(dataset.uci_housing, "uci_housing", "URL", "MD5", text.encode())
    for name in ("UCI_TRAIN_DATA", "UCI_TEST_DATA"):
        monkeypatch.setattr(dataset.uci_housing, name, None)
    train, test = list(dataset.uci_housing.train()()), list(dataset.uci_housing.test()())
    assert (len(train), len(test)) == (8, 2)
    table = np.round(table, 3)
    features = (table[:, :-1] - table[:, :-1].mean(0)) / (table[:, :-1].max(0) - table[:, :-1].min(0))
    np.testing.assert_allclose([x for x, _ in train + test], features, atol=1e-12)
    np.testing.assert_allclose([y for _, y in train + test], table[:, -1:])


def test_imdb(cache):
    reviews = {
        "aclImdb/train/pos/0_9.txt": b"Good, good film!\n",
        "aclImdb/train/neg/0_1.txt": b"bad film",
        "aclImdb/test/pos/0_9.txt": b"good",
        "aclImdb/imdb.vocab": b"good",
    }
    cache(dataset.imdb, "imdb", "URL", "MD5", tar(reviews))
    words = dataset.imdb.build_dict(re.compile(r"aclImdb/train/.*\.txt$"), 1)
    assert words == {b"film": 0, b"good": 1, "<unk>": 2}
    assert list(dataset.imdb.train(words)()) == [([1, 1, 0], 0), ([2, 0], 1)]
    assert list(dataset.imdb.test(words)()) == [([1], 0)]
    assert dataset.imdb.word_dict() == {"<unk>": 0}


def test_imikolov(cache):
    files = {
        "./simple-examples/data/ptb.train.txt": b" a b a \n a <unk> c \n",
        "./simple-examples/data/ptb.valid.txt": b" b \n",
    }
    cache(dataset.imikolov, "imikolov", "URL", "MD5", tar(files))
    words = dataset.imikolov.build_dict(1)
    assert words == {"<e>": 0, "<s>": 1, b"a": 2, b"b": 3, "<unk>": 4}
    assert list(dataset.imikolov.train(words, 4)()) == [(1, 2, 3, 2), (2, 3, 2, 0), (1, 2, 4, 4), (2, 4, 4, 0)]
    sequences = dataset.imikolov.DataType.SEQ
    assert list(dataset.imikolov.test(words, 0, sequences)()) == [([1, 3], [3, 0])]
    assert list(dataset.imikolov.train(words, 3, sequences)()) == []
    with pytest.raises(AssertionError, match="Unknown data type 7"):
        list(dataset.imikolov.train(words, 3, 7)())


def test_movielens(cache, monkeypatch):
    files = {
        "ml-1m/movies.dat": "1::Toy Story (1995)::Animation|Comedy\n7::Le Café (1996)::Comedy\n".encode("latin-1"),
        "ml-1m/users.dat": b"1::F::1::10::48067\n2::M::56::16::70072\n",
        "ml-1m/ratings.dat": b"1::7::5::978300760\n2::1::3::978302109\n",
    }
    cache(dataset.movielens, "movielens", "URL", "MD5", zipped(files))
    for name in ("MOVIE_INFO", "USER_INFO", "MOVIE_TITLE_DICT", "CATEGORIES_DICT"):
        monkeypatch.setattr(dataset.movielens, name, None)
    assert dataset.movielens.get_movie_title_dict() == {"café": 0, "le": 1, "story": 2, "toy": 3}
    assert dataset.movielens.movie_categories() == {"Animation": 0, "Comedy": 1}
    assert (dataset.movielens.max_movie_id(), dataset.movielens.max_user_id(), dataset.movielens.max_job_id()) == (
        7,
        2,
        16,
    )
    train, test = list(dataset.movielens.train()()), list(dataset.movielens.test()())
    assert train == [[1, 1, 0, 10, 7, [1], [1, 0], [5.0]], [2, 0, 6, 16, 1, [0, 1], [3, 2], [1.0]]]
    assert test == []
    assert str(dataset.movielens.user_info()[2]) == "<UserInfo id(2), gender(M), age(56), job(16)>"


def test_conll05(cache):
    words = b"The\ncat\nchased\na\nmouse\n\n"
    props = b"-  (A0*\n-  *)\nchase (V*)\n-  (A1*\n-  *)\n\n"
    files = {
        "conll05st-release/test.wsj/words/test.wsj.words.gz": gzip.compress(words),
        "conll05st-release/test.wsj/props/test.wsj.props.gz": gzip.compress(props),
    }
    put = functools.partial(cache, dataset.conll05, "conll05st")
    put("DATA_URL", "DATA_MD5", tar(files))
    put("WORDDICT_URL", "WORDDICT_MD5", b"UNK\nThe\ncat\nchased\na\nbos\n")
    put("VERBDICT_URL", "VERBDICT_MD5", b"eat\nchase\n")
    put("TRGDICT_URL", "TRGDICT_MD5", b"B-V\nB-A0\nI-A0\nB-A1\nO\n")
    _, _, labels = dataset.conll05.get_dict()
    assert labels == {"B-A0": 0, "I-A0": 1, "B-A1": 2, "I-A1": 3, "B-V": 4, "I-V": 5, "O": 6}
    (sample,) = dataset.conll05.test()()
    assert sample == (
        [1, 2, 3, 4, 0],
        [1] * 5,
        [2] * 5,
        [3] * 5,
        [4] * 5,
        [0] * 5,
        [1] * 5,
        [1, 1, 1, 1, 1],
        [0, 1, 4, 2, 3],
    )


def test_conll05_contexts_at_the_edges():
    def corpus():
        yield ["go", "on"], "go", ["B-V", "O"]

    words, verbs = {"UNK": 0, "go": 1, "on": 2, "bos": 3, "eos": 4}, {"go": 0}
    (sample,) = dataset.conll05.reader_creator(corpus, words, verbs, {"B-V": 0, "O": 1})()
    assert [part[0] for part in sample[1:6]] == [3, 3, 1, 2, 4]
    assert sample[7] == [1, 1]
    with pytest.raises(RuntimeError, match="Unexpected label: x"):
        dataset.conll05._labels(("x",))


def test_wmt14(cache):
    files = {
        "wmt14/src.dict": b"<s>\n<e>\n<unk>\nhello\nworld\n",
        "wmt14/trg.dict": b"<s>\n<e>\n<unk>\nbonjour\nmonde\n",
        "wmt14/train/train": b"hello world\tbonjour monde\nno tab\n" + b"w " * 81 + b"\tmonde\n",
        "wmt14/test/test": b"hello you\tbonjour toi\n",
    }
    cache(dataset.wmt14, "wmt14", "URL_TRAIN", "MD5_TRAIN", tar(files))
    assert list(dataset.wmt14.train(5)()) == [([0, 3, 4, 1], [0, 3, 4], [3, 4, 1])]
    assert list(dataset.wmt14.test(5)()) == [([0, 3, 2, 1], [0, 3, 2], [3, 2, 1])]
    assert dataset.wmt14.get_dict(4)[0] == {0: "<s>", 1: "<e>", 2: "<unk>", 3: "hello"}
    assert dataset.wmt14.get_dict(4, reverse=False)[1]["bonjour"] == 3


def test_wmt16(cache):
    files = {
        "wmt16/train": b"a b a\tx y\nb a\ty\n",
        "wmt16/val": b"a c\tx\n",
        "wmt16/test": b"b\ty y\n",
    }
    cache(dataset.wmt16, "wmt16", "DATA_URL", "DATA_MD5", tar(files), "wmt16.tar.gz")
    with pytest.raises(AssertionError, match="does not exist"):
        dataset.wmt16.get_dict("en", 5)
    assert list(dataset.wmt16.validation(5, 5)()) == [([0, 3, 2, 1], [0, 4], [4, 1])]
    assert list(dataset.wmt16.test(5, 5, "de")()) == [([0, 3, 3, 1], [0, 4], [4, 1])]
    assert dataset.wmt16.get_dict("en", 5) == {"<s>": 0, "<e>": 1, "<unk>": 2, "a": 3, "b": 4}
    assert dataset.wmt16.get_dict("de", 5, reverse=True)[3] == "y"
    with pytest.raises(ValueError, match="'fr'"):
        dataset.wmt16.train(5, 5, "fr")


def test_sentiment(cache, monkeypatch):
    files = {
        "movie_reviews/pos/a.txt": b"good , really good !",
        "movie_reviews/neg/b.txt": b"bad . don't go",
        "movie_reviews/README": b"",
    }
    cache(dataset.sentiment, "corpora", "URL", "MD5", zipped(files), "movie_reviews.zip")
    monkeypatch.setattr(dataset.sentiment, "NUM_TRAINING_INSTANCES", 1)
    words = dict(dataset.sentiment.get_word_dict())
    assert words["good"] == 0 and len(words) == 10
    assert dataset.sentiment.sort_files() == ["neg/b.txt", "pos/a.txt"]
    ((numbers, label),) = dataset.sentiment.train()
    assert label == 0 and [w for n in numbers for w in words if words[w] == n] == "bad . don ' t go".split()
    assert [label for _, label in dataset.sentiment.test()] == [1]


def test_mq2007(cache, tmp_path):
    def line(score, query):
        features = " ".join(f"{i}:{score + i / 100:.2f}" for i in range(1, 47))
        return f"{score} qid:{query} {features} #docid = G{score}\n"

    cache(dataset.mq2007, "MQ2007", "URL", "MD5", b"Rar!")
    folder = tmp_path / "MQ2007" / "MQ2007" / "MQ2007" / "Fold1"
    folder.mkdir(parents=True)
    (folder / "train.txt").write_text(line(0, 10) + line(2, 10) + line(1, 10) + line(0, 11) + "0 qid:1\n")
    pairs = list(dataset.mq2007.train())
    assert [(a[0], b[0]) for _, a, b in pairs] == [(2.01, 1.01), (2.01, 0.01), (1.01, 0.01)]
    ((scores, features),) = dataset.mq2007.train(format="listwise")
    assert scores.tolist() == [[2], [1], [0]] and features.shape == (3, 46)
    assert [s for s, _ in dataset.mq2007.train(format="pointwise")] == [2]
    with pytest.raises(ValueError, match="'other'"):
        list(dataset.mq2007.train(format="other"))


def test_pictures_are_cropped_flipped_and_packed(tmp_path, rng):
    picture = rng.integers(0, 256, (6, 8, 3), np.uint8)
    np.testing.assert_array_equal(dataset.image.center_crop(picture, 4), picture[1:5, 2:6])
    assert dataset.image.random_crop(picture, 4).shape == (4, 4, 3)
    np.testing.assert_array_equal(dataset.image.left_right_flip(picture), picture[:, ::-1])
    assert dataset.image.to_chw(picture).shape == (3, 6, 8)
    archive = tmp_path / "a.tgz"
    archive.write_bytes(tar({"jpg/1": b"one", "jpg/2": b"two", "jpg/3": b"three"}))
    names = {"jpg/1": 5, "jpg/3": 6}
    listing = dataset.image.batch_images_from_tar(str(archive), "train", names, 1)
    batches = [pickle.loads(Path(path).read_bytes()) for path in Path(listing).read_text().split()]
    assert batches == [{"label": [5], "data": [b"one"]}, {"label": [6], "data": [b"three"]}]
    assert dataset.image.batch_images_from_tar(str(archive), "train", names, 1) == listing


def test_a_missing_data_set_without_network(cache, monkeypatch):
    def offline(*args, **kwargs):
        raise OSError("Network is unreachable")

    monkeypatch.setattr(common.urllib.request, "urlopen", offline)
    with pytest.raises(common.DatasetUnavailable) as error:
        dataset.mnist.train()
    text = str(error.value)
    assert "train-images-idx3-ubyte.gz" in text and "Network is unreachable" in text
    assert all(part in text for part in ("expected:", "received:", "what to do:"))


def test_a_download_is_checked_and_kept(cache, tmp_path, monkeypatch):
    source = tmp_path / "source.bin"
    source.write_bytes(b"data")
    md5 = common.md5file(str(source))
    path = common.download(source.as_uri(), "some", md5)
    assert Path(path).read_bytes() == b"data"
    source.write_bytes(b"changed")
    assert common.download(source.as_uri(), "some", md5) == path, "the cache answers"
    with pytest.raises(common.DatasetUnavailable, match="MD5"):
        common.download(source.as_uri(), "other", md5)
    assert not list((tmp_path / "other").iterdir())


def test_all_that_can_be_fetched_as_a_whole_is_fetched(monkeypatch):
    fetched = []
    modules = [getattr(dataset, name) for name in dataset.__all__ if hasattr(getattr(dataset, name), "fetch")]
    for module in modules:
        monkeypatch.setattr(module, "fetch", functools.partial(fetched.append, module))
    common.fetch_all()
    assert len(fetched) == 12 and {id(module) for module in fetched} == {id(module) for module in modules}


def test_split_and_cluster_files(tmp_path):
    common.split(lambda: range(5), 2, suffix=str(tmp_path / "%02d.pickle"))
    assert [len(pickle.loads(p.read_bytes())) for p in sorted(tmp_path.iterdir())] == [3, 2]
    reader = common.cluster_files_reader(str(tmp_path / "*.pickle"), 2, 1)
    assert list(reader()) == [3, 4]
