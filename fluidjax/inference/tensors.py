"""Inputs and outputs of a predictor: arrays with names and LoD."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fluidjax.base.errors import explain
from fluidjax.base.lod import Lod
from fluidjax.base.values import LoDTensor


class PaddleDType(enum.IntEnum):
    """The dtypes of tensors."""

    FLOAT32 = 0
    INT64 = 1
    INT32 = 2
    UINT8 = 3

    __str__ = enum.Enum.__str__


class PaddlePlace(enum.IntEnum):
    """The location of a tensor."""

    UNK = -1
    CPU = 0
    GPU = 1

    __str__ = enum.Enum.__str__


_NUMPY: dict[PaddleDType, np.dtype[Any]] = {
    PaddleDType.FLOAT32: np.dtype("float32"),
    PaddleDType.INT64: np.dtype("int64"),
    PaddleDType.INT32: np.dtype("int32"),
    PaddleDType.UINT8: np.dtype("uint8"),
}
_DTYPES = {numpy: dtype for dtype, numpy in _NUMPY.items()}


def paddle_dtype_size(dtype: PaddleDType) -> int:
    """The size of an element in bytes."""
    return _NUMPY[PaddleDType(dtype)].itemsize


def dtype_of(array: np.ndarray) -> PaddleDType:
    """The dtype of an array returned by ``as_data``."""
    return _DTYPES[array.dtype]


def as_data(value: Any, what: str, declared: np.dtype | None = None) -> np.ndarray:
    """An array with the declared dtype or one that predictors support; other floating-point dtypes become float32.

    Raises TypeError for anything but numeric arrays. (Fluid 1.8.5 converts float64 to int32 here, truncating
    fractions.)
    """
    array = np.asarray(value)
    if array.dtype in _DTYPES or (declared is not None and array.dtype == declared):
        return array
    if array.dtype.kind == "f":
        return array.astype("float32")
    raise TypeError(
        explain(
            f"{what}: the array's data type is {array.dtype}",
            "float32, int32, int64 or uint8",
            f"{type(value).__name__} of {array.dtype}",
            "convert it, with .astype('int64') or .astype('float32')",
        )
    )


class PaddleBuf:
    """The elements of a tensor, without a shape.

    Args:
        data: an array, a list of floats, or a number of bytes.
    """

    def __init__(self, data: Any = 0):
        self._array = np.zeros(data if isinstance(data, int) else 0, "uint8")
        if not isinstance(data, int):
            self.reset(data)

    def resize(self, length: int) -> None:
        """Resize to ``length`` bytes; new ones are zero."""
        kept = self._array.reshape(-1).view("uint8")[:length]
        self._array = np.concatenate([kept, np.zeros(length - len(kept), "uint8")])

    def reset(self, data: Any) -> None:
        """Replace the elements: by an array, or a list of floats."""
        array = np.asarray(data, None if isinstance(data, np.ndarray) else "float32")
        self._array = as_data(array, "PaddleBuf").reshape(-1).copy()

    def empty(self) -> bool:
        """Whether the buffer is empty."""
        return self.length() == 0

    def length(self) -> int:
        """The length in bytes."""
        return self._array.nbytes

    def read(self, dtype: PaddleDType) -> np.ndarray:
        """The bytes interpreted as elements of a dtype, 1-D."""
        wanted = _NUMPY[PaddleDType(dtype)]
        return self._array if self._array.dtype == wanted else self._array.view("uint8").view(wanted)

    def float_data(self) -> list[float]:
        """The bytes as float32."""
        return self.read(PaddleDType.FLOAT32).tolist()

    def int32_data(self) -> list[int]:
        """The bytes as int32."""
        return self.read(PaddleDType.INT32).tolist()

    def int64_data(self) -> list[int]:
        """The bytes as int64."""
        return self.read(PaddleDType.INT64).tolist()

    def tolist(self, dtype: str) -> list[Any]:
        """The bytes as ``'float32'``, ``'int32'`` or ``'int64'``. Raises ValueError for any other name."""
        if dtype not in ("float32", "int32", "int64"):
            raise ValueError(
                explain(
                    f"PaddleBuf.tolist: {dtype!r} is no data type of a buffer",
                    "'float32', 'int32' or 'int64'",
                    repr(dtype),
                    "name one of them",
                )
            )
        return self._array.view("uint8").view(dtype).tolist()


class PaddleTensor:
    """One input or output of ``predictor.run``.

    Args:
        data: an array (float32, int32, int64, uint8; other floating-point dtypes become float32).
        name: the variable's name; required only if inputs are matched by name.
        lod: offsets, as in Fluid.
        copy: whether to copy the array.

    Attributes:
        name, lod: as given.
        shape: a list.
        dtype: a PaddleDType.
        data: a PaddleBuf.
    """

    def __init__(self, data: Any = None, name: str = "", lod: Lod | None = None, copy: bool = True):
        self.name = name
        self.lod = [list(level) for level in lod or []]
        self.shape: list[int] = []
        self.dtype = PaddleDType.FLOAT32
        self.data = PaddleBuf()
        if data is not None:
            array = as_data(data, "PaddleTensor")
            self.shape, self.dtype = list(array.shape), dtype_of(array)
            self.data._array = np.array(array, copy=True).reshape(-1) if copy else array.reshape(-1)

    def as_ndarray(self) -> np.ndarray:
        """The elements with their shape. Raises ValueError if their number does not match it."""
        return self._shaped().copy()

    def _shaped(self) -> np.ndarray:
        flat, size = self.data.read(self.dtype), math.prod(self.shape)
        if flat.size != size:
            raise ValueError(
                explain(
                    f"PaddleTensor {self.name!r}: shape and data do not fit",
                    f"{size} elements for shape {list(self.shape)}",
                    f"{flat.size} of {self.dtype.name}",
                    "set shape, dtype and data to belong together",
                )
            )
        return flat.reshape(self.shape)

    def as_feed(self) -> Any:
        """The value to feed to an Executor."""
        return with_lod(self._shaped(), self.lod)


def with_lod(array: np.ndarray, lod: Lod) -> Any:
    """The array or, if there is LoD, a LoDTensor."""
    if not lod:
        return array
    tensor = LoDTensor()
    tensor._set_value(array, [list(level) for level in lod])
    return tensor


class ZeroCopyTensor:
    """An input or output of ``predictor.zero_copy_run``, owned by the predictor.

    Args:
        name: the variable's name.
        dtype: that of an input as the program declares it: models of Paddle 2 may have others than ``PaddleDType``.
    """

    def __init__(self, name: str, dtype: np.dtype | None = None):
        self._name, self._dtype = name, dtype
        self._array: np.ndarray = np.zeros(0, "float32")
        self._lod: Lod = []
        self.filled = False

    def reshape(self, shape: Sequence[int]) -> None:
        """Allocate ``shape``; not needed before ``copy_from_cpu``, which sets the shape."""
        self._array = np.resize(self._array, [int(n) for n in shape])

    def copy_from_cpu(self, data: Any) -> None:
        """Copy in an array (of the input's dtype, float32, int32, int64, uint8; other floats become float32)."""
        self._array = np.array(as_data(data, f"ZeroCopyTensor {self._name!r}", self._dtype), copy=True)
        self.filled = True

    def copy_to_cpu(self) -> np.ndarray:
        """A copy of the elements as an array."""
        return self._array.copy()

    def set_lod(self, lod: Lod) -> None:
        """Set the offsets; validated when the predictor runs."""
        self._lod = [list(level) for level in lod]

    def lod(self) -> Lod:
        """The offsets."""
        return [list(level) for level in self._lod]

    def shape(self) -> list[int]:
        """The shape."""
        return list(self._array.shape)

    def type(self) -> PaddleDType:
        """The dtype."""
        return dtype_of(as_data(self._array, f"ZeroCopyTensor {self._name!r}"))

    def as_feed(self) -> Any:
        """The value to feed to an Executor."""
        return with_lod(self._array, self._lod)

    def fill(self, tensor: LoDTensor) -> None:
        """Store an output."""
        self._array, self._lod, self.filled = np.array(tensor), tensor.lod(), True
