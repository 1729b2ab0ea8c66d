"""Tensors for other libraries, and of theirs: by DLPack, as bytes, of arrays."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from fluidjax.base.places import CPUPlace
from fluidjax.base.values import LoDTensor
from fluidjax.inference.tensors import PaddleTensor


class _OnHost:
    """What NumPy reads a capsule of host memory from."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def from_dlpack(dltensor: Any) -> LoDTensor:
    """A tensor with the numbers of a DLPack capsule, as another library's ``to_dlpack`` or ``__dlpack__()`` gives it.

    The numbers lie on the host, and are copied. BufferError or TypeError where they cannot be read.
    """
    tensor = LoDTensor()
    tensor.set(np.from_dlpack(_OnHost(dltensor)), CPUPlace())
    return tensor


def paddle_tensor_to_bytes(tensor: PaddleTensor) -> bytes:
    """The stream of a predictor's tensor, little-endian.

    uint32 version=0 | uint64 length of the name, name | uint64 levels, per level uint64 bytes and uint64 offsets |
    uint64 rank, int32 dims | int32 data type | uint64 bytes, the numbers.
    """
    name, data = tensor.name.encode(), tensor.as_ndarray()
    levels = [np.asarray(level, "<u8").tobytes() for level in tensor.lod]
    dims = np.asarray(tensor.shape, "<i4").tobytes()
    return b"".join(
        [
            struct.pack("<IQ", 0, len(name)) + name,
            struct.pack("<Q", len(levels)),
            *(struct.pack("<Q", len(level)) + level for level in levels),
            struct.pack("<Q", len(tensor.shape)) + dims,
            struct.pack("<iQ", tensor.dtype, data.nbytes),
            data.astype(data.dtype.newbyteorder("<"), copy=False).tobytes(),
        ]
    )
