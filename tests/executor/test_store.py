"""The folder that processes share: entries are whole or absent, the user's own, and bounded together."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluidjax.execution.executables.store import Store

KEY = "a" * 64


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "entries", bound=1000)


def test_an_entry_is_found_by_its_key_alone(store: Store) -> None:
    assert store.get(KEY) is None
    assert store.put(KEY, b"content") and store.get(KEY) == b"content"
    assert store.get("b" * 64) is None
    (path,) = store.sizes()
    path.rename(path.with_name("b" * 64 + path.suffix))
    assert store.get("b" * 64) is None


def test_the_folder_is_the_users_alone(store: Store) -> None:
    store.put(KEY, b"content")
    (path,) = store.sizes()
    assert store.folder.stat().st_mode & 0o777 == 0o700 and path.stat().st_mode & 0o777 == 0o600


@given(entry=st.binary(max_size=40), at=st.integers(0, 200), length=st.integers(0, 200))
def test_no_damage_goes_unseen(tmp_path_factory: pytest.TempPathFactory, entry: bytes, at: int, length: int) -> None:
    store = Store(tmp_path_factory.mktemp("entries"))
    store.put(KEY, entry)
    (path,) = store.sizes()
    whole = path.read_bytes()
    at %= len(whole)
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x40]) + whole[at + 1 :])
    assert store.get(KEY) is None
    path.write_bytes(whole[: length % len(whole)])
    assert store.get(KEY) is None
    path.write_bytes(whole)
    assert store.get(KEY) == entry


def make_folder_writable(store: Store, path: Path) -> None:
    store.folder.chmod(0o777)


def make_entry_writable(store: Store, path: Path) -> None:
    path.chmod(0o622)


def give_away(store: Store, path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    os.chown(path, 12345, 12345)


def give_folder_away(store: Store, path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    os.chown(store.folder, 12345, 12345)


def link(store: Store, path: Path) -> None:
    elsewhere = path.rename(store.folder.parent / "elsewhere")
    path.symlink_to(elsewhere)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no users to tell apart")
@pytest.mark.parametrize("change", [make_folder_writable, make_entry_writable, give_away, give_folder_away, link])
def test_what_somebody_else_may_have_written_is_not_read(store: Store, change: Callable[[Store, Path], None]) -> None:
    store.put(KEY, b"content")
    (path,) = store.sizes()
    change(store, path)
    assert store.get(KEY) is None


def test_nothing_is_written_where_others_may_write(store: Store) -> None:
    store.folder.mkdir(mode=0o777)
    store.folder.chmod(0o777)
    assert not store.put(KEY, b"content") and not store.sizes()


def test_a_folder_that_cannot_be_made_keeps_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = Store(tmp_path / "file" / "entries")
    assert not store.put(KEY, b"content")
    assert store.get(KEY) is None and store.sizes() == {} and store.clear() == 0


def test_the_least_recently_used_go_first(store: Store) -> None:
    for number, key in enumerate("abc"):
        store.put(key, bytes(200))
        os.utime(store.folder / f"{key}.entry", (number, number))
    assert store.get("a") is not None
    store.put("d", bytes(400))
    assert {path.stem for path in store.sizes()} == {"a", "c", "d"}
    assert sum(store.sizes().values()) <= 1000


def test_what_alone_exceeds_the_bound_is_not_kept(store: Store) -> None:
    store.put("a", b"small")
    assert not store.put("b", bytes(1001))
    assert {path.stem for path in store.sizes()} == {"a"}


def test_clearing_deletes_what_killed_writers_left(store: Store) -> None:
    store.put("a", b"1")
    store.put("b", b"2")
    (store.folder / "tmpabc").write_bytes(b"half")
    assert store.clear() == 2
    assert not list(store.folder.iterdir())


WRITER = """
import sys
from fluidjax.execution.executables.store import Store

store = Store(sys.argv[1], bound=100_000)
for i in range(60):
    key = "abc"[i % 3]
    store.put(key, key.encode() * (10_000 + i))
    found = store.get("abc"[(i + 1) % 3])
    assert found is None or len(found) >= 10_000 and len(set(found)) == 1, found
"""


def test_writers_and_readers_meet_only_whole_entries(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(tmp_path / "entries")]
    writers = [subprocess.Popen(command) for _ in range(3)]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    store = Store(tmp_path / "entries")
    assert all(store.get(key) for key in "abc") and len(list(store.folder.iterdir())) == 3
