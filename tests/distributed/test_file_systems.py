"""File systems of fleet checkpoints: this machine's, Hadoop's by its command, and a user's own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.incubate.fleet.base.role_maker import UserDefinedCollectiveRoleMaker
from fluidjax.incubate.fleet.collective import TrainStatus, fleet
from fluidjax.paddle.distributed.fs_wrapper import BDFS, FS, LocalFS
from tests import fake_hadoop


@pytest.fixture
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands for HDFS, with the command in the PATH."""
    folder = tmp_path / "remote"
    folder.mkdir()
    home = fake_hadoop.install(tmp_path / "hadoop", folder, tmp_path / "log")
    monkeypatch.setenv("PATH", f"{home}/bin:{os.environ['PATH']}")
    return folder


@pytest.fixture(params=["local", "hadoop"])
def place(request: pytest.FixtureRequest, remote: Path, tmp_path: Path) -> tuple[FS, str]:
    """A file system, and a folder in it."""
    if request.param == "local":
        (tmp_path / "data").mkdir()
        return LocalFS(), str(tmp_path / "data")
    (remote / "data").mkdir()
    return BDFS("hdfs://x:1", "me,secret", time_out=60_000, sleep_inter=60_000), "/data"


def test_files_and_folders(place: tuple[FS, str], tmp_path: Path) -> None:
    fs, root = place
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "w").write_text("7")
    fs.mkdir(f"{root}/a/b")
    fs.upload(str(tmp_path / "model" / "w"), f"{root}/a")
    fs.upload(str(tmp_path / "model"), f"{root}/a")
    assert fs.list_dirs(f"{root}/a") == ["b", "model"] and fs.stat(f"{root}/a/w") and fs.list_dirs(f"{root}/none") == []
    assert fs.ls_dir(f"{root}/a") == (["b", "model", "w"] if isinstance(fs, LocalFS) else (["b", "model"], ["w"]))
    fs.mv(f"{root}/a/w", f"{root}/v")
    fs.download(f"{root}/v", str(tmp_path / "v"))
    assert (tmp_path / "v").read_text() == "7" and not fs.stat(f"{root}/a/w")
    for path in ("a", "v", "none"):
        fs.delete(f"{root}/{path}")
    assert not fs.stat(f"{root}/a") and not fs.stat(f"{root}/v")
    assert fs.need_upload_download() == isinstance(fs, BDFS)


def test_a_command_that_keeps_failing_is_told_without_its_password(remote: Path, monkeypatch: Any) -> None:
    (remote / "broken").touch()
    tries: list[str] = []
    run = subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda c, **kw: tries.append(c[4]) or run(c, **kw))
    with pytest.raises(
        RuntimeError, match="hadoop fs -put a /b failed for 60000 ms\n.*\n.*connection refused"
    ) as error:
        BDFS("hdfs://x:1", "me,secret", time_out=60_000, sleep_inter=60_000).upload("a", "/b")
    assert tries == ["-put"] and "secret" not in str(error.value)


def test_a_users_own_may_leave_methods_out() -> None:
    class Mine(FS):
        """Knows nothing but what exists."""

        def stat(self, fs_path: str) -> bool:
            return fs_path == "/x"

    assert Mine().stat("/x")
    with pytest.raises(NotImplementedError, match="Mine has no upload.*\n.*\n.*\n.*write Mine.upload"):
        Mine().upload("a", "b")


def test_checkpoints_go_through_the_cache(remote: Path, tmp_path: Path) -> None:
    """1.8.5 names the same files: in the cache, and on the file system."""
    main, startup = fluid.Program(), fluid.Program()
    fs, cache = BDFS("hdfs://x:1", "me,secret", time_out=60_000, sleep_inter=60_000), str(tmp_path / "cache")
    with fluid.unique_name.guard(), fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        fleet.init(UserDefinedCollectiveRoleMaker(0, ["127.0.0.1:6170"]))
        loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [2, 2]), 1, param_attr="w"))
        fleet.distributed_optimizer(fluid.optimizer.SGD(0.5)).minimize(loss)
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(fleet.startup_program)
        for epoch in range(2):
            fleet.save_check_point(executor, "/kept", TrainStatus(epoch), fs=fs, local_cache_path=cache)
        weight = fluid.global_scope().find_var("w").get_tensor()
        trained = np.array(weight)
        weight.set(0 * trained, fluid.CPUPlace())
        for _ in range(2):  # the second finds the copy of the first
            assert fleet.load_check_point(executor, "/kept", 3, fs=fs, local_cache_path=cache) == TrainStatus(1)
        np.testing.assert_array_equal(np.array(fluid.global_scope().find_var("w").get_tensor()), trained)
    name = "__paddle_fleet_checkpoint__"
    assert sorted(os.listdir(remote / "kept")) == [f"{name}.0", f"{name}.1"]
    assert sorted(os.listdir(cache)) == [f"{name}.0.saved_cache", f"{name}.1.load_cache.3", f"{name}.1.saved_cache"]
