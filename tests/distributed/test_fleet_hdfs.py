"""What a fleet keeps on HDFS, against a ``hadoop`` command that works on a local folder."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from fluidjax.incubate.fleet.base.role_maker import UserDefinedRoleMaker
from fluidjax.incubate.fleet.parameter_server.distribute_transpiler import fleet
from fluidjax.incubate.fleet.utils import fleet_barrier_util
from fluidjax.incubate.fleet.utils.fleet_util import FleetUtil
from fluidjax.incubate.fleet.utils.hdfs import HDFSClient, get_logger
from tests import fake_hadoop

FILE_SYSTEM = ("hdfs://x:1", "me,secret")


@pytest.fixture
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands for HDFS."""
    folder = tmp_path / "remote"
    folder.mkdir()
    monkeypatch.setenv("HADOOP_HOME", fake_hadoop.install(tmp_path / "hadoop", folder, tmp_path / "log"))
    return folder


@pytest.fixture
def client(remote: Path) -> HDFSClient:
    return HDFSClient("$HADOOP_HOME", {"fs.default.name": "hdfs://x:1"})


@pytest.fixture
def util(remote: Path) -> FleetUtil:
    fleet.init(UserDefinedRoleMaker(worker_num=1, server_endpoints=["127.0.0.1:1"]))
    return FleetUtil("transpiler")


def test_folders_are_copied_file_by_file(client: HDFSClient, remote: Path, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    for name in "abc":
        (tmp_path / "model" / name).write_text(name)
    (remote / "old").mkdir()
    (remote / "old" / "left").write_text("")
    client.upload("/new", str(tmp_path / "model"), multi_processes=2)
    client.upload("/old", str(tmp_path / "model" / "a"), overwrite=True)
    assert client.lsr("/", excludes=["/new/b"]) == ["/new/a", "/new/c", "/old/a"]
    assert sorted(client.download("/new", str(tmp_path / "local"))) == [str(tmp_path / "local" / n) for n in "abc"]
    assert client.upload_dir("/old/", f"{tmp_path}/model/") and client.is_file("/old/model/b")
    (remote / "broken").touch()
    with pytest.raises(RuntimeError, match="3 did not go through"):
        client.upload("/new", str(tmp_path / "model"), retry_times=0)


def test_text_of_files(client: HDFSClient, remote: Path) -> None:
    (remote / "note").write_text(" two\nlines\n")
    assert client.cat("/note") == "two\nlines" and client.cat("/none") == client.cat("/") == ""
    assert client.is_file("/note") and not client.is_file("/") and not client.is_file("/none")


def test_shares_of_trainers() -> None:
    assert [HDFSClient.split_files(list("abcde"), i, 3) for i in range(3)] == [["a", "b"], ["c", "d"], ["e"]]


def test_without_hadoop_the_error_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="the hadoop command cannot be run"):
        HDFSClient(str(tmp_path), {}).ls("/")


def test_a_log_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    logger = get_logger("tests.hdfs", logging.INFO, "%(levelname)s %(message)s")
    logger.info("copied")
    for handler in logger.handlers:
        handler.close()
    assert (tmp_path / "hdfs.log").read_text() == "INFO copied\n"


def test_saved_models_are_noted_once(util: FleetUtil, remote: Path) -> None:
    assert util.get_last_save_model("/out", *FILE_SYSTEM)[:3] == [-1, -1, ""]
    for day, of_pass in [(20190723, 6), (20190723, -1), (20190723, 6)]:
        util.write_model_donefile("/out", day, of_pass, 7, *FILE_SYSTEM)
    assert (remote / "out/donefile.txt").read_text() == (
        "20190723\t7\t/out/20190723/6/\t6\t0\n20190723\t7\t/out/20190723/0/\t-1\t0\n"
    )
    assert util.get_last_save_model("/out", *FILE_SYSTEM) == [20190723, -1, "/out/20190723/0/", 7]


def test_served_models_are_noted_in_order(util: FleetUtil, remote: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOB_ID", "job1")
    monkeypatch.setenv("INSTANCE_ID", "a-job1.host--3")
    assert util.get_last_save_xbox("/out", *FILE_SYSTEM)[:3] == [-1, -1, ""]
    for day, of_pass in [(20190723, 6), (20190723, 5), (20190724, 1)]:
        util.write_xbox_donefile("/out", day, of_pass, 7, ["/a", "/b"], *FILE_SYSTEM)
    lines = [json.loads(line) for line in (remote / "out/xbox_patch_done.txt").read_text().splitlines()]
    assert [line["input"] for line in lines] == [
        "hdfs://x:1/out/20190723/delta-6/000",
        "hdfs://x:1/out/20190724/delta-1/000",
    ]
    assert lines[0]["job_id"] == "job1.host" and lines[0]["ins_path"] == "/a,/b" and lines[0]["mpi_size"] == "1"
    path = "hdfs://x:1/out/20190724/delta-1"
    assert util.get_last_save_xbox("/out", *FILE_SYSTEM) == [20190724, 1, path, 7]


def test_the_base_of_a_day_is_noted_once(util: FleetUtil) -> None:
    for day in (20190723, 20190723, 20190724):
        util.write_xbox_donefile("/out", day, -1, 7, "/a", *FILE_SYSTEM)
    assert util.get_last_save_xbox_base("/out", *FILE_SYSTEM) == [20190724, "hdfs://x:1/out/20190724/base", 7]


def test_the_size_of_a_cache(util: FleetUtil, remote: Path) -> None:
    for keys in (12, 13):
        util.write_cache_donefile("/out", 20190723, 6, keys, *FILE_SYSTEM, file_num=4, table_id=2)
    written = (remote / "out/20190723/delta-6/002_cache/sparse_cache.meta").read_text()
    assert written == "file_prefix:part\npart_num:4\nkey_num:12\n"


def test_trainers_wait_for_each_other(
    util: FleetUtil, client: HDFSClient, remote: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second of two trainers comes while the first waits."""
    monkeypatch.setenv("FS_NAME", "hdfs://x:1")
    monkeypatch.setenv("FS_UGI", "me,secret")
    fleet.init(UserDefinedRoleMaker(worker_num=2, server_endpoints=["127.0.0.1:1"]))
    waited = []

    def second_comes(seconds: float) -> None:
        waited.append(seconds)
        (remote / "ready" / "ready.3.1.done").touch()

    monkeypatch.setattr(fleet_barrier_util.time, "sleep", second_comes)
    fleet_barrier_util.check_all_trainers_ready("/ready", 3)
    assert waited == [10] and client.ls("/ready") == ["/ready/ready.3.0.done", "/ready/ready.3.1.done"]
