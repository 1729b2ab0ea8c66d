"""Many small arrays in one compressed file: an index of (name, dtype, shape), then the numbers of all of them."""

from __future__ import annotations

import json
import lzma
from collections.abc import Mapping
from pathlib import Path

import numpy as np


def write(path: str | Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write the arrays; of text, in UTF-8."""
    parts = {k: v if v.dtype.kind != "U" else np.frombuffer(str(v).encode(), "S1") for k, v in arrays.items()}
    index = json.dumps([[k, v.dtype.str, list(v.shape)] for k, v in parts.items()]).encode()
    data = b"".join(np.ascontiguousarray(v).tobytes() for v in parts.values())
    Path(path).write_bytes(lzma.compress(len(index).to_bytes(4, "little") + index + data))


def read(path: str | Path) -> dict[str, np.ndarray]:
    """The arrays of a file that ``write`` wrote; text as S1."""
    content = lzma.decompress(Path(path).read_bytes())
    at = 4 + int.from_bytes(content[:4], "little")
    found = {}
    for name, dtype, shape in json.loads(content[4:at]):
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        found[name] = np.frombuffer(content[at : at + size], dtype).reshape(shape)
        at += size
    return found
