"""Pickles dicts from names to NumPy arrays to the same bytes as Python 3.7 with NumPy of that time.

Uses protocol 2 and modules ``numpy.core...``, so that old readers can load them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fluidjax.base.errors import explain

BATCH = 1000  # items that one SETITEMS takes, as CPython's pickler has it
MAX_STRING = (1 << 32) - 1  # protocol 2 has 32-bit lengths


class ArrayPickler:
    """Writes one pickle of a dict of arrays, plain numbers, strings and dicts; ``dump`` returns its bytes.

    Repeated parts are written once and referred to by number, in the order in which CPython would memoise them.
    """

    def __init__(self) -> None:
        self._out = bytearray(b"\x80\x02")
        self._count = 0
        self._memo: dict[Any, int] = {}

    def dump(self, content: Mapping[str, Any]) -> bytes:
        """The bytes of the pickle, protocol 2. A pickler can only be used once, as it keeps its memo."""
        self._dict(content)
        return bytes(self._out + b".")

    def _dict(self, content: Mapping[str, Any]) -> None:
        self._word(b"}")
        items = list(content.items())
        if len(items) == 1:
            self._item(*items[0])
            self._out += b"s"
        elif items:
            for start in range(0, len(items) + 1, BATCH):  # a full last batch is followed by an empty one
                self._out += b"("
                for name, value in items[start : start + BATCH]:
                    self._item(name, value)
                self._out += b"u"

    def _item(self, name: str, value: Any) -> None:
        # The same names are keys of several dicts, and one object in all of them.
        self._once(("text" if len(name) == 1 else "key", name), lambda: self._fresh_text(name))
        self._value(value)

    def _value(self, value: Any) -> None:
        if isinstance(value, np.ndarray):
            self._array(value)
        elif isinstance(value, np.generic):
            self._scalar(value)
        elif isinstance(value, Mapping):
            self._dict(value)
        elif isinstance(value, list):
            self._list(value)
        elif isinstance(value, str):
            self._text(value)
        elif value is None or isinstance(value, bool):
            self._out += {None: b"N", True: b"\x88", False: b"\x89"}[value]
        elif isinstance(value, int):
            self._int(value)
        elif isinstance(value, float):
            self._out += b"G" + struct.pack(">d", value)
        else:
            raise TypeError(
                explain(
                    f"a {type(value).__name__} cannot be saved",
                    "arrays, numbers, texts, and dicts or lists of them",
                    repr(value)[:80],
                    "convert it, or leave it out of the state dict",
                )
            )

    def _list(self, values: list[Any]) -> None:
        self._word(b"]")
        if len(values) == 1:
            self._value(values[0])
            self._out += b"a"
            return
        for start in range(0, len(values), BATCH):
            self._out += b"("
            for value in values[start : start + BATCH]:
                self._value(value)
            self._out += b"e"

    def _scalar(self, value: np.generic) -> None:
        self._global("numpy.core.multiarray", "scalar")
        self._once(("dtype", value.dtype.str), lambda: self._dtype(value.dtype))
        self._bytes(value.tobytes())
        self._word(b"\x86")
        self._word(b"R")

    def _array(self, array: np.ndarray) -> None:
        fortran = array.flags.f_contiguous and not array.flags.c_contiguous
        self._global("numpy.core.multiarray", "_reconstruct")
        self._global("numpy", "ndarray")
        self._int(0)
        self._word(b"\x85")
        self._bytes(b"b")
        self._word(b"\x87")
        self._word(b"R")
        self._out += b"("
        self._int(1)
        self._shape(array.shape)
        self._once(("dtype", array.dtype.str), lambda: self._dtype(array.dtype))
        self._out += b"\x88" if fortran else b"\x89"
        self._bytes(array.tobytes("F" if fortran else "C"))
        self._word(b"t")
        self._out += b"b"

    def _dtype(self, dtype: np.dtype) -> int:
        self._global("numpy", "dtype")
        self._text(dtype.str[1:])
        self._out += b"\x89\x88"
        self._word(b"\x87")
        number = self._word(b"R")
        self._out += b"("
        self._int(3)
        self._text(dtype.str[0])
        self._out += b"NNN"
        for value in (-1, -1, 0):
            self._int(value)
        self._word(b"t")
        self._out += b"b"
        return number

    def _bytes(self, data: bytes) -> None:
        if len(data) == 1:  # CPython keeps one object for each single byte, and refers to it
            self._once(("bytes", data), lambda: self._encoded(data))
        elif data:
            self._encoded(data)
        else:  # protocol 2 has no bytes: b"" is written as a call of bytes()
            self._global("__builtin__", "bytes")
            self._out += b")"
            self._word(b"R")

    def _encoded(self, data: bytes) -> int:
        self._global("_codecs", "encode")
        self._text(data.decode("latin-1"))
        self._once(("text", "latin1"), lambda: self._fresh_text("latin1"))
        self._word(b"\x86")
        return self._word(b"R")

    # -- the words of the pickle machine --

    def _shape(self, shape: tuple[int, ...]) -> None:
        if not shape:
            self._out += b")"
            return
        if len(shape) > 3:
            self._out += b"("
        for dim in shape:
            self._int(dim)
        self._word(b"\x85\x86\x87t"[min(len(shape), 4) - 1 :][:1])

    def _int(self, value: int) -> None:
        if 0 <= value < 256:
            self._out += b"K" + struct.pack("<B", value)
        elif 0 <= value < 65536:
            self._out += b"M" + struct.pack("<H", value)
        elif -(1 << 31) <= value < 1 << 31:
            self._out += b"J" + struct.pack("<i", value)
        else:
            size = value.bit_length() // 8 + 1
            self._out += b"\x8a" + struct.pack("<B", size) + value.to_bytes(size, "little", signed=True)

    def _text(self, text: str) -> None:
        if len(text) == 1:
            self._once(("text", text), lambda: self._fresh_text(text))
        else:
            self._fresh_text(text)

    def _fresh_text(self, text: str) -> int:
        data = text.encode("utf-8", "surrogatepass")
        if len(data) > MAX_STRING:
            raise ValueError(
                explain(
                    "an array is too large for this format",
                    "less than 4 GiB of pickled text for each variable",
                    f"{len(data)} bytes",
                    "save it with fluid.io.save_params or save_persistables, whose format has no such limit",
                )
            )
        return self._word(b"X" + struct.pack("<I", len(data)) + data)

    def _global(self, module: str, name: str) -> None:
        self._once(("global", module, name), lambda: self._word(f"c{module}\n{name}\n".encode()))

    def _once(self, key: Any, emit: Callable[[], int]) -> None:
        """Write a part in full the first time, and only its number afterwards."""
        number = self._memo.get(key)
        if number is None:
            self._memo[key] = emit()
        else:
            self._out += b"h" + struct.pack("<B", number) if number < 256 else b"j" + struct.pack("<I", number)

    def _word(self, word: bytes) -> int:
        """Write a string whose result gets the next number; returns that number."""
        number = self._count
        self._count += 1
        self._out += word
        self._out += b"q" + struct.pack("<B", number) if number < 256 else b"r" + struct.pack("<I", number)
        return number


def dumps(content: Mapping[str, Any]) -> bytes:
    """The pickle of ``{name: array}``, byte for byte what Paddle 1.8.5 writes. Raises TypeError for other values."""
    return ArrayPickler().dump(content)
