"""A folder of entries that processes share: whole or absent, the user's own, the least recently used deleted first.

Entries hold machine code. So the folder and each of its files has to belong to the user who runs this, and nobody else
may write to it; anything else counts as absent. So does what was cut off, damaged, or stored under another key.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

BOUND = 1 << 30  # bytes
_MAGIC = b"fluidjax entry 1"
_SUFFIX = ".entry"


class Store:
    """Entries by key.

    Args:
        folder: made when the first entry is written, for its user alone.
        bound: how many bytes all entries may take together.
    """

    def __init__(self, folder: str | os.PathLike[str], bound: int = BOUND):
        self.folder = Path(folder)
        self._bound = bound

    def get(self, key: str) -> bytes | None:
        """The entry of ``key``, which is then the most recently used; None when there is none that can be trusted."""
        try:
            if not _own(os.stat(self.folder)):
                return None
            descriptor = os.open(self._path(key), os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
        except OSError:
            return None
        with open(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            content = file.read() if stat.S_ISREG(found.st_mode) and _own(found) else b""
        entry = content[len(_MAGIC) + hashlib.sha256().digest_size :]
        if content != _sealed(key, entry):
            return None
        with contextlib.suppress(OSError):
            os.utime(self._path(key))
        return entry

    def put(self, key: str, entry: bytes) -> bool:
        """Store an entry; returns whether it is there now. A failure to write, such as a full disk, is not an error."""
        if len(entry) > self._bound:
            return False
        try:
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
            if not _own(os.stat(self.folder)):
                return False
            self._write(key, _sealed(key, entry))
            self._trim()
        except OSError:
            return False
        return True

    def sizes(self) -> dict[Path, int]:
        """The size of each entry, the least recently used first."""
        return {path: found.st_size for path, found in self._files() if path.suffix == _SUFFIX}

    def clear(self) -> int:
        """Delete all entries, and what killed writers left behind; returns how many entries there were."""
        count = len(self.sizes())
        for path, _ in self._files():
            path.unlink(missing_ok=True)
        return count

    def _path(self, key: str) -> Path:
        return self.folder / (key + _SUFFIX)

    def _write(self, key: str, content: bytes) -> None:
        """Write beside the entry, then rename: readers and other writers find the old one or the new one."""
        descriptor, name = tempfile.mkstemp(dir=self.folder)
        try:
            with open(descriptor, "wb") as file:
                file.write(content)
            os.replace(name, self._path(key))
        except BaseException:
            os.unlink(name)
            raise

    def _trim(self) -> None:
        files = list(self._files())
        total = sum(found.st_size for _, found in files)
        for path, found in files:
            if total <= self._bound:
                break
            path.unlink(missing_ok=True)
            total -= found.st_size

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        found = []
        with contextlib.suppress(OSError), os.scandir(self.folder) as files:
            for file in files:
                with contextlib.suppress(FileNotFoundError):  # another process may have just deleted it
                    if file.is_file(follow_symlinks=False):
                        found.append((Path(file.path), file.stat(follow_symlinks=False)))
        return iter(sorted(found, key=lambda pair: pair[1].st_mtime_ns))


def _sealed(key: str, entry: bytes) -> bytes:
    return _MAGIC + hashlib.sha256(key.encode() + entry).digest() + entry


def _own(found: os.stat_result) -> bool:
    """Whether only the user who runs this can have written it, as far as the system tells users apart."""
    return not hasattr(os, "geteuid") or (found.st_uid == os.geteuid() and not found.st_mode & 0o022)
