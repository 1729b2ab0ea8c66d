"""A save killed at any point leaves the old files or the new ones."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fluidjax.files import atomic
from fluidjax.files.errors import UnsafeNameError

NAMES = ["a", "b", "folder/c"]

# Forks for each call that changes the disk, and dies there by SIGKILL; FOLDER/<step> is what is left.
KILLED = """
import sys
from fluidjax.files import atomic
from tests.crash.writers import killed_at
from tests.crash.test_saves import NAMES, new, old
for step in range(200):
    directory = f"{sys.argv[1]}/{step}"
    atomic.write_files(directory, {name: [old(name)] for name in NAMES})
    if killed_at(step, lambda d: atomic.write_files(d, {name: [new(name)] for name in NAMES}), directory):
        break
print(step)
"""

# Saves version after version until it is killed from outside.
ENDLESS = """
import sys
from fluidjax.files import atomic
version = 0
while True:
    version += 1
    atomic.write_files(sys.argv[1], {name: [str(version).encode() * 20000] for name in ("a", "b", "folder/c")})
    print(version, flush=True)
"""


def environment():
    return dict(os.environ, PYTHONPATH=str(Path(__file__).parents[2]))


def contents(directory):
    out = []
    for name in NAMES:
        with atomic.open_newest(str(directory), name) as file:
            out.append(file.read())
    return out


def old(name):
    return b"old " + name.encode()


def new(name):
    return b"new " * 1000 + name.encode()


def test_killed_at_each_step(tmp_path):
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    steps, outcomes = int(done.stdout), []
    for step in range(steps + 1):
        directory = tmp_path / str(step)
        found = contents(directory)
        assert found in ([old(n) for n in NAMES], [new(n) for n in NAMES]), f"a mixture after step {step}"
        outcomes.append(found[0][:3])
        atomic.write_files(str(directory), {"a": [b"later"]})
        assert contents(directory) == [b"later", *found[1:]]
        assert sorted(os.listdir(directory)) == ["a", "b", "folder"], "the next save cleans up"
    assert steps > 10 and (outcomes[0], outcomes[-1]) == (b"old", b"new")


def test_killed_at_any_moment(tmp_path, rng):
    for attempt in range(4):
        directory = tmp_path / str(attempt)
        worker = subprocess.Popen([sys.executable, "-c", ENDLESS, str(directory)], env=environment(), stdout=-1)
        worker.stdout.readline()
        time.sleep(float(rng.uniform(0, 0.05)))
        worker.kill()
        worker.communicate()
        found = contents(directory)
        versions = {data[: len(data) // 20000] for data in found}
        assert len(versions) == 1, f"versions {versions} side by side"
        assert all(data == versions.copy().pop() * 20000 for data in found)


def test_an_error_while_saving_leaves_the_old_files(tmp_path):
    atomic.write_files(str(tmp_path), {"a": [b"old"]})

    def chunks():
        yield b"half"
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        atomic.write_files(str(tmp_path), {"a": [b"new"], "b": chunks()})
    assert os.listdir(tmp_path) == ["a"] and (tmp_path / "a").read_bytes() == b"old"


@pytest.mark.parametrize(
    "name", ["../x", "/etc/x", "a/../../x", "", "a//b", ".", "a\0b", "a\\b", "link/x", ".fluidjax-x"]
)
def test_names_stay_inside_the_directory(tmp_path, name):
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "link").symlink_to(tmp_path)
    with pytest.raises(UnsafeNameError, match="what to do"):
        atomic.write_files(str(tmp_path / "inner"), {name: [b""]})
    assert sorted(os.listdir(tmp_path)) == ["inner"]


def test_a_folder_in_the_way_is_an_error_before_anything_is_written(tmp_path):
    (tmp_path / "a").mkdir()
    with pytest.raises(IsADirectoryError, match="a folder of that name"):
        atomic.write_files(str(tmp_path), {"a": [b""]})
    assert os.listdir(tmp_path) == ["a"]
