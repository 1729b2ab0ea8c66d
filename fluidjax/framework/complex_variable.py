"""ComplexVariable: a complex value represented by two real variables."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluidjax.base.enums import VarType


class ComplexVariable:
    """A complex value in eager mode; created by ``fluid.dygraph.to_variable`` from a complex array.

    Args:
        real, imag: variables of the same shape and dtype.

    Raises AssertionError if shapes or dtypes differ.
    """

    def __init__(self, real: Any, imag: Any) -> None:
        for what, one, two in (("shape", real.shape, imag.shape), ("data type", real.dtype, imag.dtype)):
            if one != two:
                raise AssertionError(
                    f"The real part and imaginary part of a ComplexVariable should have the same {what}: expected "
                    f"{one}, received {two}. Reshape or cast one of them."
                )
        self.real = real
        self.imag = imag

    @property
    def dtype(self) -> str:
        """``complex64`` if the parts have 16 or 32 bits, else ``complex128``."""
        return "complex64" if self.real.dtype in (VarType.FP16, VarType.FP32) else "complex128"

    @property
    def shape(self) -> Any:
        """The shape of both parts."""
        return self.real.shape

    @property
    def name(self) -> dict[str, str]:
        """The names of the parts. Assign a string, to which ``.real`` and ``.imag`` are appended, or a pair."""
        return {"real": self.real.name, "imag": self.imag.name}

    @name.setter
    def name(self, name: str | tuple[str, str] | list[str]) -> None:
        if isinstance(name, str):
            name = f"{name}.real", f"{name}.imag"
        elif not isinstance(name, (tuple, list)) or len(name) != 2:
            raise ValueError(
                f"An invalid name assigned to the ComplexVariable: expected a string, or a tuple or list of two, "
                f"received {name!r}. Pass one of them."
            )
        self.real.name, self.imag.name = name

    def numpy(self) -> np.ndarray:
        """The value as a complex array."""
        return self.real.numpy() + 1j * self.imag.numpy()

    def __str__(self) -> str:
        return f"REAL: {self.real}IMAG: {self.imag}"

    __repr__ = __str__
