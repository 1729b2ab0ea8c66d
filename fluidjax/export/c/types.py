"""JAX's numbers in C: types, constants, and text that is safe in a C file."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

C_TYPES = {
    "float32": "float",
    "float64": "double",
    "int8": "int8_t",
    "int16": "int16_t",
    "int32": "int32_t",
    "int64": "int64_t",
    "uint8": "uint8_t",
    "uint16": "uint16_t",
    "uint32": "uint32_t",
    "uint64": "uint64_t",
    "bool": "uint8_t",
}


def c_type(dtype: Any) -> str:
    """The C type of an element. KeyError for dtypes without one (float16, complex ...)."""
    return C_TYPES[np.dtype(dtype).name]


def covered(dtype: Any) -> bool:
    """Whether C has an equivalent type."""
    return np.dtype(dtype).name in C_TYPES


def short(dtype: Any) -> str:
    """``f32``, ``i64``, ``u8``, ``b8``: the suffix of a helper's name that tells its type."""
    dtype = np.dtype(dtype)
    return f"{dtype.kind}{8 * dtype.itemsize}"


def literal(value: Any, dtype: Any) -> str:
    """A constant of ``dtype`` in C, exact to the last bit."""
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        return _floating(float(value), dtype.itemsize)
    number = int(value)
    if dtype.kind == "b":
        return str(int(bool(number)))
    if dtype.kind == "u":
        return f"{number}ULL" if dtype.itemsize == 8 else f"{number}u"
    if number == np.iinfo(dtype).min:  # -N is an expression in C, and its N may not fit
        return f"{short(dtype)}_MIN"
    word = f"{number}LL" if dtype.itemsize == 8 else str(number)
    return f"({word})" if number < 0 else word


def _floating(number: float, size: int) -> str:
    suffix = "f" if size == 4 else ""
    if math.isnan(number):
        return f"f{8 * size}_NAN"
    if math.isinf(number):
        return f"f{8 * size}_INF" if number > 0 else f"(-f{8 * size}_INF)"
    word = f"{number.hex()}{suffix}" if number != int(number) or abs(number) > 1e6 else f"{number:.1f}{suffix}"
    return f"({word})" if math.copysign(1, number) < 0 else word


def c_string(text: str) -> str:
    """A C string literal for any text; everything but letters, digits and some punctuation becomes an octal escape."""
    plain = set(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 _-.,:=()[]@")
    return '"' + "".join(chr(b) if b in plain else f"\\{b:03o}" for b in text.encode("utf-8", "replace")) + '"'


def comment(text: str) -> str:
    """Text that is safe inside a comment, whatever characters a model's names contain."""
    kept = "".join(c if c.isascii() and (c.isalnum() or c in " _-.,:=[](){}+<>@#!;") else "?" for c in text)
    return kept[:160]


def array_text(array: np.ndarray) -> str:
    """The elements of an array as an initialiser."""
    return ", ".join(literal(value, array.dtype) for value in array.ravel())
