"""Saving all or nothing: a process killed at any point leaves the old files or the new ones, never a mixture.

A save is prepared in a hidden folder beside its files, fsynced, and *committed by one rename of that folder*;
only then its files are moved to their places. A folder that was committed and not yet emptied is the truth
for the files it holds: readers look there first (``newest``), and the next save finishes the move.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterable, Mapping
from typing import BinaryIO

from fluidjax.files.errors import explain
from fluidjax.files.paths import RESERVED, inside

STAGING = RESERVED + "staging-"
COMMITTED = RESERVED + "committed-"

Chunks = Iterable[bytes | memoryview]


def write_files(directory: str, files: Mapping[str, Chunks]) -> None:
    """Write ``{name: chunks}`` into ``directory`` (made when absent) as one step."""
    directory = directory or "."
    os.makedirs(directory, exist_ok=True)
    for name in files:
        _check_target(inside(directory, name))
    finish(directory)
    _remove_abandoned(directory)
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
    os.rename(staging, committed)
    _sync_folder(directory)
    _empty(directory, committed)


def write_file(path: str, chunks: Chunks) -> None:
    """Write one file as one step."""
    directory, name = os.path.split(path)
    write_files(directory, {name: chunks})


def newest(directory: str, name: str) -> str:
    """The path to read ``name`` from: inside a committed folder when its move was cut short, else its place."""
    path = inside(directory or ".", name)
    for folder in _committed(directory or "."):
        candidate = os.path.join(folder, name)
        if os.path.isfile(candidate):
            return candidate
    return path


def finish(directory: str) -> None:
    """Move the files of saves that were committed and then cut short to their places."""
    for folder in _committed(directory):
        _empty(directory, folder)


def open_newest(directory: str, name: str) -> BinaryIO:
    """Open ``name`` for reading where ``newest`` finds it, also while another process is moving it into place."""
    for _ in range(8):
        path = newest(directory, name)
        try:
            return open(path, "rb")
        except FileNotFoundError:
            if path == newest(directory, name):
                raise
    raise FileNotFoundError(f"{os.path.join(directory, name)} keeps moving while it is opened")


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
    for parent, _, names in os.walk(folder):
        relative = os.path.relpath(parent, folder)
        target = os.path.normpath(os.path.join(directory, relative))
        if relative != ".":
            os.makedirs(target, exist_ok=True)
        for name in names:
            os.replace(os.path.join(parent, name), os.path.join(target, name))
        if names:
            _sync_folder(target)
    shutil.rmtree(folder)
    _sync_folder(directory)


def _committed(directory: str) -> list[str]:
    if not os.path.isdir(directory):
        return []
    return [os.path.join(directory, name) for name in sorted(os.listdir(directory)) if name.startswith(COMMITTED)]


def _remove_abandoned(directory: str) -> None:
    """Remove what dead processes had prepared and never committed."""
    for name in os.listdir(directory):
        if name.startswith(STAGING) and not _alive(name[len(STAGING) :].split("-")[0]):
            shutil.rmtree(os.path.join(directory, name), ignore_errors=True)


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
    """Make the names in a folder durable (a no-op where folders cannot be opened, as on Windows)."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
