"""Sequential reading of a file of known size: every length is checked against the remaining bytes before use."""

from __future__ import annotations

import io
import os
import struct
from functools import cache
from typing import BinaryIO

import numpy as np

from fluidjax.files.errors import bad_file


@cache
def _layout(code: str) -> struct.Struct:
    return struct.Struct("<" + code)


class Cursor:
    """A position in a binary file or in bytes. ``label`` names the source in error messages."""

    def __init__(self, source: BinaryIO | bytes, label: str) -> None:
        self.label = label
        if isinstance(source, (bytes, bytearray, memoryview)):
            self._file: BinaryIO = io.BytesIO(source)
            self.size = len(source)
        else:
            self._file = source
            self.size = os.fstat(source.fileno()).st_size
        self.position = 0

    @property
    def left(self) -> int:
        """The number of bytes left."""
        return self.size - self.position

    def need(self, count: int, what: str) -> None:
        """Raise unless ``count`` more bytes are available."""
        if not 0 <= count <= self.left:
            raise bad_file(
                f"{self.label}: {what} at byte {self.position} does not fit in the file",
                f"{count} bytes" if count >= 0 else "a length of zero or more",
                f"{self.left} bytes left of {self.size}" if count >= 0 else f"length {count}",
            )

    def take(self, count: int, what: str) -> bytes:
        """The next ``count`` bytes; if there are fewer, raises an error naming ``what``."""
        self.need(count, what)
        data = self._file.read(count)
        if len(data) != count:
            raise bad_file(f"{self.label}: the file shrank while it was read", f"{count} bytes", f"{len(data)}")
        self.position += count
        return data

    def number(self, code: str, what: str) -> int:
        """One little-endian integer of struct code ``code``."""
        layout = _layout(code)
        return layout.unpack(self.take(layout.size, what))[0]

    def array(self, dtype: np.dtype, count: int, what: str) -> np.ndarray:
        """``count`` elements, allocated only after checking that enough bytes are left."""
        self.need(count * dtype.itemsize, what)
        out = np.empty(count, dtype)
        got = self._file.readinto(out.view(np.uint8)) if out.nbytes else 0  # type: ignore[attr-defined]
        if got != out.nbytes:
            raise bad_file(f"{self.label}: the file shrank while it was read", f"{out.nbytes} bytes", f"{got}")
        self.position += out.nbytes
        return out

    def skip(self, count: int, what: str) -> None:
        """Skip ``count`` bytes; if there are fewer, raises an error naming ``what``."""
        self.need(count, what)
        self._file.seek(count, os.SEEK_CUR)
        self.position += count

    def end(self) -> None:
        """Raise if bytes are left over."""
        if self.left:
            raise bad_file(
                f"{self.label}: {self.left} bytes follow the end of the data",
                f"the file to end at byte {self.position}",
                f"{self.size} bytes",
                "load it with the list of variables it was saved with, in the same order; or save it again",
            )


class View(Cursor):
    """A position in bytes that stay in memory: arrays lie where the numbers are, and cannot be written.

    ``begin`` and ``end``: what is read of the bytes; all by default.
    """

    def __init__(self, data: bytes, label: str, begin: int = 0, end: int | None = None) -> None:
        self.label, self.size, self.position = label, len(data) if end is None else end, begin
        self._data = data

    def take(self, count: int, what: str) -> bytes:
        """The next ``count`` bytes; if there are fewer, raises an error naming ``what``."""
        self.need(count, what)
        self.position += count
        return self._data[self.position - count : self.position]

    def array(self, dtype: np.dtype, count: int, what: str) -> np.ndarray:
        """``count`` elements: a view, or a copy where their place is no address of such a number."""
        size = count * dtype.itemsize
        self.need(size, what)
        found = np.frombuffer(self._data, np.uint8, size, self.position).view(dtype) if size else np.empty(count, dtype)
        self.position += size
        return found if found.flags.aligned else found.copy()

    def skip(self, count: int, what: str) -> None:
        """Skip ``count`` bytes; if there are fewer, raises an error naming ``what``."""
        self.need(count, what)
        self.position += count
