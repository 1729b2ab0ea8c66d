"""Folders that may come from anybody, and that several threads or processes use at once."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.files import atomic
from fluidjax.files.errors import FileFormatError, UnsafeNameError
from fluidjax.files.tensor import DenseValue, encode

COMMITTED = atomic.COMMITTED + "1-0123abcd"


@pytest.fixture
def places(tmp_path):
    """A folder of saved files, and a foreign one beside it."""
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    atomic.write_files(str(inside), {"a": [b"mine"]})
    outside.mkdir()
    (outside / "a").write_bytes(b"foreign")
    return inside, outside


def read(folder, name):
    with atomic.open_newest(str(folder), name) as file:
        return file.read()


def test_a_committed_folder_that_is_a_link_is_no_save(places):
    inside, outside = places
    (inside / COMMITTED).symlink_to(outside)
    assert read(inside, "a") == b"mine"
    atomic.write_files(str(inside), {"b": [b"new"]})
    assert read(inside, "a") == b"mine" and os.listdir(outside) == ["a"]


def test_links_in_a_committed_folder_lead_nowhere(places):
    inside, outside = places
    (inside / COMMITTED).mkdir()
    (inside / COMMITTED / "a").symlink_to(outside / "a")
    (inside / COMMITTED / "sub").symlink_to(outside)
    assert read(inside, "a") == b"mine"
    with pytest.raises((FileNotFoundError, UnsafeNameError)):
        read(inside, "sub/a")
    atomic.write_files(str(inside), {"b": [b"new"]})
    assert sorted(os.listdir(inside)) == ["a", "b"] and (outside / "a").read_bytes() == b"foreign"


def test_nothing_is_moved_out_through_a_link(places):
    """As an ``authorized_keys`` was overwritten."""
    inside, outside = places
    (inside / "sub").symlink_to(outside)
    (inside / COMMITTED / "sub").mkdir(parents=True)
    (inside / COMMITTED / "sub" / "a").write_bytes(b"planted")
    with pytest.raises(UnsafeNameError):
        atomic.write_files(str(inside), {"b": [b"new"]})
    assert (outside / "a").read_bytes() == b"foreign"


@pytest.mark.parametrize("name", [".fluidjax-committed-", ".fluidjax-committed-x", ".fluidjax-committed-1-0123abcd/.."])
def test_other_names_are_no_saves(places, name):
    inside, _ = places
    os.makedirs(inside / name, exist_ok=True)
    (inside / name / "c").write_bytes(b"planted")
    if not name.endswith(".."):
        with pytest.raises(FileNotFoundError):
            read(inside, "c")
    assert read(inside, "a") == b"mine"


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.symlink("/dev/zero", path)], ids=["pipe", "device"])
def test_what_never_ends_is_refused_at_once(places, make):
    inside, _ = places
    make(inside / "w")
    with pytest.raises(FileFormatError, match="regular file"):
        read(inside, "w")


def test_savers_take_turns_and_readers_see_one_save(tmp_path):
    names, errors, mixed = [f"w{i}" for i in range(6)], [], 0
    stop = threading.Event()

    def save(letter):
        try:
            for number in range(15):
                atomic.write_files(str(tmp_path), {n: [f"{letter}{number}".encode()] for n in names})
        except BaseException as error:
            errors.append(error)

    def load():
        nonlocal mixed
        while not stop.is_set():
            with atomic.reading(str(tmp_path)):
                mixed += len({read(tmp_path, n) for n in names}) > 1

    save("z")
    savers = [threading.Thread(target=save, args=(letter,)) for letter in "ab"]
    reader = threading.Thread(target=load)
    for thread in (*savers, reader):
        thread.start()
    for thread in savers:
        thread.join()
    stop.set()
    reader.join()
    assert not errors and not mixed
    assert sorted(os.listdir(tmp_path)) == names


def test_savers_of_two_processes_take_turns(tmp_path):
    code = (
        "import sys; from fluidjax.files import atomic\n"
        "for i in range(25): atomic.write_files(sys.argv[1], {n: [sys.argv[2].encode()] for n in 'abc'})"
    )
    environment = dict(os.environ, PYTHONPATH=str(Path(__file__).parents[2]))
    command = [sys.executable, "-c", code, str(tmp_path)]
    savers = [subprocess.Popen([*command, letter], env=environment, stderr=subprocess.PIPE) for letter in "xy"]
    for saver in savers:
        _, error = saver.communicate()
        assert saver.returncode == 0, error
    assert len({read(tmp_path, n) for n in "abc"}) == 1 and sorted(os.listdir(tmp_path)) == ["a", "b", "c"]


def test_a_state_is_complete_while_its_first_save_is_cut_short(tmp_path):
    """As after a kill between the commit and the moves: what is not in its place yet belongs to the folder."""
    atomic.write_files(str(tmp_path / "model"), {"w": encode(DenseValue(np.ones(2, np.float32)))})
    (tmp_path / "model" / COMMITTED).mkdir()
    (tmp_path / "model" / "w").rename(tmp_path / "model" / COMMITTED / "w")
    with pytest.warns(UserWarning, match="not found"):
        state = fluid.io.load_program_state(str(tmp_path / "model"))
    assert list(state) == ["w"] and state["w"].tolist() == [1, 1]
