"""Opening dataset archives: corrupt ones, and those that unpack to an excessive size, raise a clear error."""

from __future__ import annotations

import bz2
import contextlib
import errno
import gzip
import io
import lzma
import os
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO

from fluidjax.files.errors import FileFormatError, bad_file

# What an archive may hold: no data set here is packed by a tenth of this factor.
MAX_RATIO = 200
ROOM = 64 << 20

_SIGNS_OF_DAMAGE = (
    zlib.error,
    lzma.LZMAError,
    struct.error,
    tarfile.TarError,
    zipfile.BadZipFile,
    EOFError,
    LookupError,
    ArithmeticError,
    AttributeError,
    ValueError,
    TypeError,
    RuntimeError,
    MemoryError,
)


@contextlib.contextmanager
def sound(path: str) -> Iterator[None]:
    """Context manager for reading a dataset's file: converts signs of corruption to FileFormatErrors."""
    try:
        yield
    except FileFormatError:
        raise
    except _SIGNS_OF_DAMAGE as error:
        raise _broken(path, error) from error
    except OSError as error:
        if error.errno not in (None, errno.EINVAL) or isinstance(error, FileNotFoundError):
            raise
        # bz2 and gzip say so where the data is wrong; zipfile seeks to before the start
        raise _broken(path, error) from error


def _broken(path: str, error: Exception) -> FileFormatError:
    return bad_file(
        f"{path}: the archive of the data set cannot be read",
        "the files of the data set, undamaged",
        f"{type(error).__name__}: {error}"[:300],
        "remove it, so that it is fetched again",
    )


@contextlib.contextmanager
def tar(path: str) -> Iterator[tarfile.TarFile]:
    """Open a tar archive, compressed or not, for reading."""
    with sound(path), open(path, "rb") as file, Bounded(_unpacked(file), path, allowance(path)) as stream:
        with _Tar.open(fileobj=stream, mode="r:") as archive:
            yield archive


class _Tar(tarfile.TarFile):
    """Rejects sparse members, which declare a size without containing the bytes."""

    def next(self) -> tarfile.TarInfo | None:
        member = super().next()
        if member is not None and member.size > self.fileobj.limit:  # type: ignore[attr-defined]
            raise too_much(str(member.name)[:200], member.size)
        return member


@contextlib.contextmanager
def zipped(path: str) -> Iterator[zipfile.ZipFile]:
    """Open a zip archive for reading."""
    with sound(path), zipfile.ZipFile(path) as archive:
        size = sum(member.file_size for member in archive.infolist())
        if size > allowance(path):
            raise too_much(path, size)
        yield archive


@contextlib.contextmanager
def gzipped(path: str) -> Iterator[BinaryIO]:
    """Open a gzipped file for reading."""
    with sound(path), gzip.open(path) as file, Bounded(file, path, allowance(path)) as stream:
        yield stream


def allowance(path: str) -> int:
    """The number of bytes a file may unpack to."""
    return MAX_RATIO * os.path.getsize(path) + ROOM


def too_much(path: str, size: int) -> FileFormatError:
    """The error for an archive that unpacks to ``size`` bytes or more."""
    return bad_file(
        f"{path}: the archive unpacks to far more than a data set",
        f"at most {MAX_RATIO} times its size and {ROOM} bytes",
        f"{size} bytes or more",
        "remove it, so that it is fetched again",
    )


def _unpacked(file: BinaryIO) -> Any:
    start = file.read(6)
    file.seek(0)
    if start[:2] == b"\x1f\x8b":
        return gzip.open(file)
    if start[:3] == b"BZh":
        return bz2.open(file)
    return lzma.open(file) if start == b"\xfd7zXZ\x00" else file


class Bounded(io.BufferedIOBase, BinaryIO):
    """A readable stream that unpacks no byte beyond ``limit``."""

    def __init__(self, stream: Any, path: str, limit: int) -> None:
        self._stream, self._path, self.limit = stream, path, limit

    def readable(self) -> bool:
        """Always True."""
        return True

    def seekable(self) -> bool:
        """Always True."""
        return True

    def tell(self) -> int:
        """The position in bytes from the start."""
        return self._stream.tell()

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Change the position; not beyond the limit."""
        target = {os.SEEK_SET: 0, os.SEEK_CUR: self.tell()}.get(whence, self.limit) + offset
        if whence == os.SEEK_END:
            return self._stream.seek(offset, whence)
        self._check(target)
        return self._stream.seek(target)

    def read(self, size: int | None = -1) -> bytes:
        """The next ``size`` bytes, or all; raises the error of ``too_much`` if they extend beyond the limit."""
        size = -1 if size is None else size
        left = self.limit - self.tell()
        data = self._stream.read(left + 1 if size < 0 else min(size, left + 1))
        self._check(self.tell())
        return data

    def read1(self, size: int = -1) -> bytes:
        """As ``read``."""
        return self.read(size)

    def close(self) -> None:
        """Close the stream and the underlying one."""
        self._stream.close()
        super().close()

    def _check(self, position: int) -> None:
        if position > self.limit:
            raise too_much(self._path, position)
