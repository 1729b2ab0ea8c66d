"""HDFSClient, multi_upload and multi_download against a ``hadoop`` command that works on a local folder."""

import os
import zipfile

import pytest

from fluidjax.contrib import HDFSClient, multi_download, multi_upload
from tests import fake_hadoop


@pytest.fixture
def remote(tmp_path):
    """A folder that stands for HDFS."""
    folder = tmp_path / "remote"
    folder.mkdir()
    return folder


@pytest.fixture
def client(tmp_path, remote):
    home = fake_hadoop.install(tmp_path / "hadoop", remote, tmp_path / "log")
    return HDFSClient(home, {"fs.default.name": "hdfs://x:1", "hadoop.job.ugi": "me,secret"})


def test_arguments_reach_the_command_unchanged(client, tmp_path):
    odd = "/a b; touch x 'q' $HOME"
    assert client.makedirs(odd) and client.is_dir(odd) and client.is_exist(odd)
    calls = (tmp_path / "log").read_text().splitlines()
    properties = ["-Dfs.default.name=hdfs://x:1", "-Dhadoop.job.ugi=me,secret"]
    assert calls[0] == repr(["fs", *properties, "-mkdir", "-p", odd])


def test_upload_and_download(client, remote, tmp_path):
    file = tmp_path / "numbers.txt"
    file.write_text("1")
    assert client.upload("/data/new", str(file))
    assert not client.upload("/data/new", str(file))
    (remote / "data/new/other").write_text("stays")
    file.write_text("2")
    assert client.upload("/data/new", str(file), overwrite=True)
    assert (remote / "data/new/numbers.txt").read_text() == "2" and (remote / "data/new/other").exists()
    target = tmp_path / "local"
    assert client.download("/data/new/numbers.txt", str(target))
    assert not client.download("/data/new/numbers.txt", str(target))
    (target / "numbers.txt").write_text("old")
    assert client.download("/data/new/numbers.txt", str(target), overwrite=True)
    assert (target / "numbers.txt").read_text() == "2"
    assert client.download("/data/new", str(target)) and (target / "new" / "other").exists()
    assert not client.download("/missing", str(target))
    assert not client.upload("/data", str(tmp_path))
    with pytest.raises(ValueError, match="there is no"):
        client.upload("/data", str(tmp_path / "missing"))


def test_download_unpacks(client, remote, tmp_path):
    with zipfile.ZipFile(remote / "packed.zip", "w") as packed:
        packed.writestr("inside/file", "x")
    assert client.download("/packed.zip", str(tmp_path / "out"), unzip=True)
    assert (tmp_path / "out" / "inside" / "file").read_text() == "x"


def test_delete_and_rename(client, remote):
    (remote / "a" / "b").mkdir(parents=True)
    (remote / "a" / "file").write_text("x")
    assert client.rename("/a/file", "/a/moved") and not client.is_exist("/a/file")
    (remote / "a" / "file").write_text("y")
    assert not client.rename("/a/file", "/a/moved")
    assert client.rename("/a/file", "/a/moved", overwrite=True)
    assert (remote / "a" / "moved").read_text() == "y"
    assert not client.rename("/a/none", "/a/other")
    assert client.delete("/a/moved") and client.delete("/a") and client.delete("/a")
    assert list(remote.iterdir()) == []


def fill(folder, names):
    """Files whose ages fall in the order of their names."""
    for minute, name in enumerate(names):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
        os.utime(file, (60 * 60 + 10 - minute,) * 2)


def test_listings(client, remote):
    fill(remote / "data", ["a file", "sub/b", "c"])
    assert client.ls("/data") == ["/data/a file", "/data/c", "/data/sub"]
    assert client.lsr("/data", sort=False) == ["/data/a file", "/data/c", "/data/sub/b"]
    assert client.lsr("/data") == ["/data/c", "/data/sub/b", "/data/a file"]
    assert "/data/sub" in client.lsr("/data", only_file=False)
    assert client.ls("/missing") == client.lsr("/missing") == []


def test_many_files_at_once(client, remote, tmp_path):
    names = [f"{'sub/' * (i % 2)}part-{i}" for i in range(5)]
    fill(tmp_path / "local", names)
    multi_upload(client, "/up", str(tmp_path / "local"), multi_processes=2)
    assert sorted(client.lsr("/up")) == sorted(f"/up/{name}" for name in names)
    shares = [multi_download(client, "/up", str(tmp_path / f"trainer{i}"), i, 2) for i in range(2)]
    assert [len(share) for share in shares] == [3, 2]
    for i, share in enumerate(shares):
        for path in share:
            with open(path) as file:
                assert file.read() == os.path.relpath(path, tmp_path / f"trainer{i}")
    with pytest.raises(RuntimeError, match="5 did not go through"):
        multi_upload(client, "/up", str(tmp_path / "local"))
    multi_upload(client, "/up", str(tmp_path / "local"), overwrite=True)


def test_failures(client, remote, tmp_path, caplog):
    (tmp_path / "file").write_text("x")
    (remote / "broken").write_text("")
    assert not client.upload("/data", str(tmp_path / "file"), retry_times=2)
    calls = (tmp_path / "log").read_text().splitlines()
    assert sum("'-put'" in call for call in calls) == 3
    assert "connection refused" in caplog.text and "secret" not in caplog.text
    with pytest.raises(RuntimeError, match="1 did not go through"):
        multi_download(client, "/data/../", str(tmp_path / "out"), 0, 1)


def test_errors(tmp_path, client):
    missing = HDFSClient(str(tmp_path / "nowhere"), {})
    with pytest.raises(FileNotFoundError, match="nowhere/bin/hadoop.*Pass HDFSClient"):
        missing.ls("/")
    for path in ("", None, "-rm"):
        with pytest.raises(ValueError, match="expected a path on HDFS"):
            client.is_exist(path)
    with pytest.raises(TypeError, match="takes an HDFSClient"):
        multi_upload(None, "/a", "b")
    with pytest.raises(ValueError, match="trainer_id from 0 to 1"):
        multi_download(client, "/a", "b", 2, 2)


@pytest.mark.parametrize("path", ["/", "/data/.."])
def test_a_download_without_a_name_removes_nothing(client, remote, tmp_path, path):
    (remote / "data").mkdir()
    here = tmp_path / "here"
    here.mkdir()
    (here / "kept").write_text("1")
    with pytest.raises(ValueError, match="ends in the name"):
        client.download(path, str(here), overwrite=True)
    assert (here / "kept").exists()


def test_a_listing_does_not_lead_out_of_the_folder(client, tmp_path, monkeypatch):
    monkeypatch.setattr(client, "lsr", lambda *args, **kwargs: ["/data/../etc/x"])
    with pytest.raises(ValueError, match="expected files of '/data'"):
        multi_download(client, "/data", str(tmp_path / "here"), 0, 1)
