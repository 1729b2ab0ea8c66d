"""Locks on files between the processes of one host."""

from __future__ import annotations

from typing import IO, Any

from fluidjax.base.optional import optional

_WHY = "searches on one host agree through a locked file, which needs POSIX"


def _fcntl() -> Any:
    return optional("fcntl", _WHY, "nothing: use Linux or macOS")


def lock(file: IO[Any]) -> None:
    """Wait until no other process has locked the file, and lock it."""
    _fcntl().flock(file.fileno(), _fcntl().LOCK_EX)


def free(file: IO[Any]) -> bool:
    """Lock the file if no other process has; whether it did."""
    try:
        _fcntl().flock(file.fileno(), _fcntl().LOCK_EX | _fcntl().LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlock(file: IO[Any]) -> None:
    """Give the lock back."""
    _fcntl().flock(file.fileno(), _fcntl().LOCK_UN)
