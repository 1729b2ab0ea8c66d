"""Requests and answers as NumPy's .npz: one array per tensor, and ``NAME.lod0``, ``NAME.lod1`` for its offsets."""

from __future__ import annotations

import io
import tokenize
import zipfile
import zlib
from collections.abc import Mapping

import numpy as np

from fluidjax.base.lod import Lod
from fluidjax.serving.as_json import check_names
from fluidjax.serving.errors import bad_input
from fluidjax.serving.tensors import Tensor, Variable, check_room

MEDIA = "application/x-npz"
# What zipfile and NumPy raise for files that are none.
_DAMAGED = (
    *(zipfile.BadZipFile, zlib.error, tokenize.TokenError, SyntaxError, NotImplementedError),
    *(EOFError, OSError, RuntimeError, LookupError, ValueError, TypeError, OverflowError),
)
_MEMBERS = 1000


def read(body: bytes, inputs: Mapping[str, Variable], limit: int) -> dict[str, Tensor]:
    """The inputs in a request. Raises Refused unless it is an archive of plain arrays of at most ``limit`` bytes."""
    arrays = _arrays(body, limit)
    offsets = {f"{name}.lod{depth}": name for name, var in inputs.items() for depth in range(var.lod_level)}
    given = {name: array for name, array in arrays.items() if name in inputs or name not in offsets}
    check_names(given, inputs)
    return {name: var.accept(given[name], _lod(var, arrays)) for name, var in inputs.items()}


def _lod(var: Variable, arrays: Mapping[str, np.ndarray]) -> Lod:
    levels = [arrays[name] for depth in range(var.lod_level) if (name := f"{var.name}.lod{depth}") in arrays]
    if any(level.ndim != 1 or level.dtype.kind not in "iu" for level in levels):
        raise bad_input(
            f"input {var.name!r}: its LoD is no list of offsets",
            f"whole numbers of one dim in {var.name}.lod0",
            ", ".join(f"{level.dtype}{list(level.shape)}" for level in levels),
            "send np.array([0, 2, 5]) for sequences of 2 and 3 rows",
        )
    return [level.tolist() for level in levels]


def _arrays(body: bytes, limit: int) -> dict[str, np.ndarray]:
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            members = archive.infolist()
            size = sum(member.file_size for member in members)
            if len(members) > _MEMBERS or size > limit:
                raise bad_input(
                    "the archive unpacks to too much",
                    f"at most {limit} bytes in {_MEMBERS} arrays",
                    f"{size} bytes in {len(members)}",
                    "send fewer samples at once",
                )
            return {m.filename.removesuffix(".npy"): _array(m.filename, archive.read(m), limit) for m in members}
    except _DAMAGED as error:
        raise bad_input(
            "the body is not an .npz that can be read",
            "an archive of .npy files, as np.savez writes it, without pickled objects",
            f"{type(error).__name__}: {error}"[:200],
            "write it with np.savez(file, name=array)",
        ) from None


def _array(name: str, content: bytes, limit: int) -> np.ndarray:
    """The array of a .npy file, whose header must match the file size: memory is only allocated for actual data."""
    stream = io.BytesIO(content)
    version = np.lib.format.read_magic(stream)
    header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
    shape, by_columns, dtype = header(stream)
    if dtype.kind not in "biuf":
        raise ValueError(f"{name} holds {dtype}, not numbers")
    check_room(name, shape, dtype.itemsize, limit)
    flat = np.frombuffer(content, dtype, offset=stream.tell())
    rows = flat.reshape(shape, order="F" if by_columns else "C")
    return np.ascontiguousarray(rows, dtype.newbyteorder("=")).reshape(shape)


def write(outputs: Mapping[str, Tensor]) -> bytes:
    """Encode an answer."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, tensor in outputs.items():
            _put(archive, name, tensor.rows)
            for depth, level in enumerate(tensor.lod):
                _put(archive, f"{name}.lod{depth}", np.asarray(level, np.int64))
    return buffer.getvalue()


def _put(archive: zipfile.ZipFile, name: str, array: np.ndarray) -> None:
    with archive.open(f"{name}.npy", "w") as file:
        np.lib.format.write_array(file, np.asarray(array), allow_pickle=False)
