"""Archives of data sets: FileFormatError, or samples."""

import gzip
import io
import pickle
import struct
import tarfile
import zipfile

import numpy as np
import pytest

from fluidjax.files.errors import FileFormatError
from fluidjax.paddle.dataset import archives, cifar, mnist
from tests.conftest import seed_of
from tests.fuzz.mutate import cases


def packed(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def test_mnist(tmp_path) -> None:
    images = struct.pack(">IIII", 2051, 4, 3, 3) + bytes(36)
    labels = tmp_path / "labels.gz"
    labels.write_bytes(gzip.compress(struct.pack(">II", 2049, 4) + bytes(4)))
    path = tmp_path / "images.gz"
    for data in cases(images, seed_of("mnist"), wrap=gzip.compress):
        path.write_bytes(data)
        try:
            assert len(list(mnist.reader_creator(str(path), str(labels), 2)())) <= 4
        except FileFormatError:
            continue


def test_cifar(tmp_path) -> None:
    batch = {"data": np.zeros((2, 3072), np.uint8), "labels": [1, 2]}
    content = packed({"cifar/data_batch_1": pickle.dumps(batch, protocol=2)})
    path = tmp_path / "cifar.tar.gz"
    for data in cases(content, seed_of("cifar"), wrap=lambda c: gzip.compress(c, 1)):
        path.write_bytes(data)
        try:
            assert len(list(cifar.reader_creator(str(path), "data_batch")())) <= 4
        except FileFormatError:
            continue


def test_a_tar_bomb_is_refused(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(archives, "ROOM", 1 << 20)
    path = tmp_path / "bomb.tar.gz"
    path.write_bytes(gzip.compress(packed({"data_batch": bytes(32 << 20)})))
    with pytest.raises(FileFormatError, match="far more than a data set"):
        list(cifar.reader_creator(str(path), "data_batch")())


def test_a_zip_bomb_is_refused(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(archives, "ROOM", 1 << 20)
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", bytes(32 << 20))
    with pytest.raises(FileFormatError, match="far more than a data set"), archives.zipped(str(path)):
        pass


def test_a_gzip_bomb_is_refused(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(archives, "ROOM", 1 << 20)
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(bytes(32 << 20)))
    with pytest.raises(FileFormatError, match="far more than a data set"), archives.gzipped(str(path)) as file:
        file.read()
