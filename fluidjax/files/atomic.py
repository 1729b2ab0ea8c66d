"""Atomic saving: a process killed at any point leaves either the old files or the new ones, never a mixture.

A save is prepared in a hidden directory next to its files, fsynced, and *committed by a single rename of that
directory*; only then are its files moved into place. A committed directory that is not yet empty is authoritative
for the files it contains: readers look there first (``newest``), and the next save finishes the move.

Writers to a directory take turns, and readers lock it (``reading``) while they read files that belong together. The
lock is on the directory itself, and is released with its process.

A directory may come from anyone: links in or to a committed directory are not part of a save, and are not followed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO

from fluidjax.base.errors import explain
from fluidjax.files.errors import bad_file
from fluidjax.files.paths import RESERVED, inside

fcntl: Any
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

STAGING = RESERVED + "staging-"
COMMITTED = RESERVED + "committed-"
_TOKEN = re.compile(r"\d+-[0-9a-f]{8}")

Chunks = Iterable[bytes | memoryview]


def write_files(directory: str, files: Mapping[str, Chunks]) -> None:
    """Write ``{name: chunks}`` to ``directory`` (created if absent) atomically."""
    directory = directory or "."
    os.makedirs(directory, exist_ok=True)
    for name in files:
        _check_target(inside(directory, name))
    token = f"{os.getpid()}-{secrets.token_hex(4)}"
    staging = os.path.join(directory, STAGING + token)
    os.mkdir(staging)
    try:
        for name, chunks in files.items():
            _write(os.path.join(staging, name), chunks)
        _sync_tree(staging)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    committed = os.path.join(directory, COMMITTED + token)
    with _locked(directory, exclusive=True):
        finish(directory)
        _remove_abandoned(directory)
        os.rename(staging, committed)
        _sync_folder(directory)
        _empty(directory, committed)


def write_file(path: str, chunks: Chunks) -> None:
    """Write one file atomically."""
    directory, name = os.path.split(path)
    write_files(directory, {name: chunks})


def newest(directory: str, name: str) -> str:
    """The path from which to read ``name``: in a committed directory if its move was interrupted, else as usual."""
    path = inside(directory or ".", name)
    for folder in _committed(directory or "."):
        if _is_file_below(folder, name):
            return os.path.join(folder, name)
    return path


def names(directory: str) -> list[str]:
    """The files directly in a directory, including those whose move was interrupted."""
    folders = [directory, *_committed(directory)]
    found = {name for folder in folders for name in os.listdir(folder) if not os.path.isdir(os.path.join(folder, name))}
    return sorted(found)


@contextlib.contextmanager
def reading(directory: str | None) -> Iterator[None]:
    """Context manager: no save changes the directory, so that everything read belongs to the same save."""
    if directory is None or not os.path.isdir(directory or "."):
        yield
        return
    with _locked(directory or ".", exclusive=False):
        yield


@contextlib.contextmanager
def _locked(directory: str, *, exclusive: bool) -> Iterator[None]:
    if fcntl is None:  # where there is no such lock, each file is still whole
        yield
        return
    handle = os.open(directory, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some network file systems have none either
            fcntl.flock(handle, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
        yield
    finally:
        os.close(handle)


def finish(directory: str) -> None:
    """Finish moving the files of saves that were committed and then interrupted."""
    for folder in _committed(directory):
        _empty(directory, folder)


def open_newest(directory: str, name: str) -> BinaryIO:
    """Open ``name`` for reading at its ``newest`` path, even while another process is moving it into place."""
    for _ in range(8):
        path = newest(directory, name)
        try:
            return _open_file(path)
        except FileNotFoundError:
            if path == newest(directory, name):
                raise
    raise FileNotFoundError(f"{os.path.join(directory, name)} keeps moving while it is opened")


def _open_file(path: str) -> BinaryIO:
    """Open a file for reading; a pipe or device, which may never end, is rejected without waiting for it."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        mode = os.fstat(handle).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if not stat.S_ISREG(mode):
            raise bad_file(f"{path!r} is no file", "a regular file", "a pipe, socket or device", "check the path")
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def _check_target(path: str) -> None:
    if os.path.isdir(path):
        raise IsADirectoryError(
            explain(
                f"cannot save to {path!r}",
                "the name of a file, new or to be replaced",
                "a folder of that name",
                "save under another name, or move the folder away",
            )
        )


def _write(path: str, chunks: Chunks) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "xb") as file:
        for chunk in chunks:
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())


def _empty(directory: str, folder: str) -> None:
    """Move the files of a committed directory into place; anything that no save creates, such as links, is deleted."""
    for parent, _, names in os.walk(folder):
        relative = os.path.relpath(parent, folder)
        files = [name for name in names if stat.S_ISREG(os.lstat(os.path.join(parent, name)).st_mode)]
        for name in files:
            # The places are checked as a save's names are: no link leads outside.
            target = inside(directory, os.path.normpath(os.path.join(relative, name)).replace(os.sep, "/"))
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.replace(os.path.join(parent, name), target)
        if files:
            _sync_folder(os.path.join(directory, relative))
    shutil.rmtree(folder)
    _sync_folder(directory)


def _committed(directory: str) -> list[str]:
    """The committed directories created by saves: no links, files or other names."""
    if not os.path.isdir(directory):
        return []
    found = sorted(name for name in os.listdir(directory) if _TOKEN.fullmatch(name.removeprefix(COMMITTED)))
    return [path for name in found if _is_folder(path := os.path.join(directory, name))]


def _is_folder(path: str) -> bool:
    """Whether this is a directory, not a link to one, and owned by the user or root."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and (not hasattr(os, "getuid") or found.st_uid in (os.getuid(), 0))


def _is_file_below(folder: str, name: str) -> bool:
    """Whether ``folder/name`` is a file, without links in its path."""
    *parts, last = name.split("/")
    for part in parts:
        folder = os.path.join(folder, part)
        if not _is_folder(folder):
            return False
    try:
        return stat.S_ISREG(os.lstat(os.path.join(folder, last)).st_mode)
    except OSError:
        return False


def _remove_abandoned(directory: str) -> None:
    """Remove what dead processes have prepared but not committed."""
    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        if name.startswith(STAGING) and _is_folder(path) and not _alive(name[len(STAGING) :].split("-")[0]):
            shutil.rmtree(path, ignore_errors=True)


def _alive(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, ValueError):
        return False
    except PermissionError:
        return True
    return True


def _sync_tree(folder: str) -> None:
    for parent, _, _ in os.walk(folder):
        _sync_folder(parent)


def _sync_folder(folder: str) -> None:
    """Make the names in a directory durable (a no-op where directories cannot be opened, as on Windows)."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
