"""The pickles of ``fluid.save`` (.pdparams, .pdopt): a dict from variable names to NumPy arrays.

``pickle_writer`` writes them. They are read without running anything: a pickle is a program, and this reader knows
only the few opcodes and names needed for arrays and plain containers.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
from collections import OrderedDict
from typing import Any

import numpy as np

from fluidjax.files.errors import FileFormatError, bad_file
from fluidjax.files.pickle_writer import dumps

MAX_DEPTH = 64  # of containers in containers

__all__ = ["dumps", "loads"]

# What a pickle of arrays and plain containers is made of; no other word is let through.
_WORDS = frozenset(
    """PROTO FRAME STOP MARK POP POP_MARK NONE NEWTRUE NEWFALSE
    INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT
    STRING BINSTRING SHORT_BINSTRING BINBYTES SHORT_BINBYTES BINBYTES8
    UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8
    EMPTY_LIST LIST APPEND APPENDS EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3
    EMPTY_DICT DICT SETITEM SETITEMS GET BINGET LONG_BINGET PUT BINPUT LONG_BINPUT MEMOIZE
    GLOBAL STACK_GLOBAL REDUCE BUILD""".split()
)
_FILLS = ("APPEND", "APPENDS", "SETITEM", "SETITEMS", "BUILD")
_PUTS = ("PUT", "BINPUT", "LONG_BINPUT")


class _Dtype:
    """Stands in for ``numpy.dtype`` while a pickle is read; only plain numeric types are allowed."""

    def __init__(self, name: Any = None, *_: Any) -> None:
        name = name.decode("latin-1") if isinstance(name, bytes) else name
        try:
            self.dtype = np.dtype(name if isinstance(name, str) else "")
        except TypeError as error:
            raise pickle.UnpicklingError(f"{name!r} is no dtype") from error
        if self.dtype.kind not in "biuf" or self.dtype.fields:
            raise pickle.UnpicklingError(f"dtype {name!r} is not one of numbers or booleans")

    def __setstate__(self, state: Any) -> None:
        order = state[1] if isinstance(state, tuple) and len(state) > 1 else None
        order = order.decode("latin-1") if isinstance(order, bytes) else order
        if order not in ("<", ">", "|", "="):
            raise pickle.UnpicklingError(f"{order!r} is no byte order")
        if order == ">":
            self.dtype = self.dtype.newbyteorder(">")


class _Array:
    """Stands in for ``numpy.ndarray`` while a pickle is read; ``value`` is a read-only view of the file's bytes."""

    value: np.ndarray | None = None

    def __setstate__(self, state: Any) -> None:
        if not (isinstance(state, tuple) and len(state) == 5 and isinstance(state[2], _Dtype)):
            raise pickle.UnpicklingError("an array's state is not (version, shape, dtype, order, data)")
        _, shape, dtype, fortran, data = state
        data = data.encode("latin-1") if isinstance(data, str) else data
        if not isinstance(data, bytes):
            raise pickle.UnpicklingError("an array's data is not bytes")
        if not (isinstance(shape, tuple) and len(shape) <= 32 and all(type(d) is int and d >= 0 for d in shape)):
            raise pickle.UnpicklingError(f"{shape!r} is no shape")
        if math.prod(shape) * dtype.dtype.itemsize != len(data) or math.prod(max(d, 1) for d in shape) > 1 << 48:
            raise pickle.UnpicklingError(f"shape {shape} of {dtype.dtype} does not fit {len(data)} bytes of data")
        flat = np.frombuffer(data, dtype.dtype)
        self.value = flat.reshape(shape, order="F" if fortran else "C")


class _Scalar(_Array):
    """Stands in for a NumPy scalar while a pickle is read."""


class _Reader(pickle.Unpickler):
    """An Unpickler that finds only stand-ins. ``budget`` bounds how far repeated opcodes can expand a small file."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data), encoding="latin1")
        self.budget = 2 * len(data) + 1024

    def find_class(self, module: str, name: str) -> Any:
        module = module.replace("numpy._core", "numpy.core")
        known = {
            ("numpy.core.multiarray", "_reconstruct"): self._reconstruct,
            ("numpy.core.multiarray", "scalar"): self._scalar,
            ("numpy", "ndarray"): _Array,
            ("numpy", "dtype"): _Dtype,
            ("_codecs", "encode"): self._encode,
            ("__builtin__", "bytes"): self._empty,
            ("builtins", "bytes"): self._empty,
            ("collections", "OrderedDict"): OrderedDict,
        }
        if (module, name) not in known:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no parameter file needs")
        return known[module, name]

    def _reconstruct(self, *_: Any) -> _Array:
        return _Array()

    def _scalar(self, dtype: Any, data: Any) -> _Array:
        array = _Scalar()
        array.__setstate__((1, (), dtype, False, data))
        return array

    def _encode(self, text: Any, coding: Any = "") -> bytes:
        if not isinstance(text, str) or coding not in ("latin1", "latin-1"):
            raise pickle.UnpicklingError("encode() of something else than latin1 text")
        self.budget -= len(text)
        if self.budget < 0:
            raise pickle.UnpicklingError("its data adds up to more than the file holds")
        return text.encode("latin-1")

    @staticmethod
    def _empty(*args: Any) -> bytes:
        if args:
            raise pickle.UnpicklingError("bytes() with arguments")
        return b""


def loads(data: bytes, label: str) -> dict[str, Any]:
    """The dict in a pickle: arrays (read-only views), and plain strings, numbers, lists and dicts.

    Raises FileFormatError for anything else: other types, calls, truncated or oversized files. Nothing is executed.
    """
    try:
        _check_words(data)
        loaded = _Reader(data).load()
        if not isinstance(loaded, dict) or not all(isinstance(key, str) for key in loaded):
            raise pickle.UnpicklingError(f"it holds a {type(loaded).__name__}, not a dict from names")
        budget = [len(data)]
        return {key: _plain(value, budget) for key, value in loaded.items()}
    except FileFormatError:
        raise
    except Exception as error:  # a hostile pickle can raise nearly anything from the unpickler
        raise bad_file(
            f"{label}: this is not a file of parameters that can be read",
            "a pickled dict from variable names to arrays of numbers",
            f"{type(error).__name__}: {error}"[:300],
            "name the file that fluid.save wrote (.pdparams or .pdopt), or save it again",
        ) from error


def _check_words(data: bytes) -> None:
    """Reject unknown opcodes, deep nesting, and memo numbers so large that their table would exhaust memory."""
    count, depths = 0, _Depths()
    for word, argument, _ in pickletools.genops(data):
        count += 1
        if word.name not in _WORDS:
            raise pickle.UnpicklingError(f"it uses {word.name}, which no parameter file needs")
        if word.name in _PUTS and not 0 <= int(argument or 0) <= count:
            raise pickle.UnpicklingError(f"it numbers an object {argument} after {count} words")
        depths.follow(word, argument)


class _Depths:
    """The pickle machine, tracking the depth of each object instead of the object.

    Python compares and hashes nested tuples by recursion in C, which crashes the process if they are deep.
    """

    def __init__(self) -> None:
        self._stack: list[int] = []
        self._marks: list[int] = []
        self._memo: dict[int, int] = {}

    def follow(self, word: pickletools.OpcodeInfo, argument: Any) -> None:
        """Execute one opcode. Raises IndexError if it takes something that is not there."""
        name, stack = word.name, self._stack
        if name == "MARK":
            self._marks.append(len(stack))
        elif name in _PUTS or name == "MEMOIZE":
            self._memo[len(self._memo) if name == "MEMOIZE" else int(argument)] = stack[-1]
        elif word.name.endswith("GET"):
            stack.append(self._memo.get(int(argument), 0))
        else:
            parts = self._taken(word)
            if word.stack_after:
                stack.append(self._depth(parts, fills=name in _FILLS))

    def _taken(self, word: pickletools.OpcodeInfo) -> list[int]:
        """The depths of what an opcode takes from the stack; those after the last mark if it uses one."""
        before = word.stack_before
        count = len(before)
        if pickletools.stackslice in before:
            count = len(self._stack) - self._marks.pop() + before.index(pickletools.markobject)
        return [self._stack.pop() for _ in range(count)]

    @staticmethod
    def _depth(parts: list[int], *, fills: bool) -> int:
        """The depth of an opcode's result: a new object containing these parts, or the last of them, which it fills."""
        filled = parts.pop() if fills else 0
        depth = max(filled, 1 + max(parts, default=-1))
        if depth > MAX_DEPTH:
            raise pickle.UnpicklingError(f"its containers are nested more than {MAX_DEPTH} deep")
        return depth


def _plain(value: Any, budget: list[int], depth: int = 0) -> Any:
    """Replace stand-ins by actual values; ``budget``, one per file, bounds repetition and self-reference."""
    budget[0] -= 1
    if depth > MAX_DEPTH:
        raise pickle.UnpicklingError(f"its containers are nested more than {MAX_DEPTH} deep")
    if budget[0] < 0:
        raise pickle.UnpicklingError("its containers hold each other")
    if isinstance(value, _Array):
        if value.value is None:
            raise pickle.UnpicklingError("an array without data")
        return value.value[()] if isinstance(value, _Scalar) else value.value
    if isinstance(value, dict):
        return {_plain(k, budget, depth + 1): _plain(v, budget, depth + 1) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_plain(v, budget, depth + 1) for v in value)
    if value is None or isinstance(value, (str, bytes, bool, int, float)):
        return value
    raise pickle.UnpicklingError(f"a {type(value).__name__}")
