"""``unittest`` comparisons with the arithmetic of NumPy 1.

There, ``0.9 - numpy.float32(0.9)`` was a double, like the Python number; since NumPy 2 it is a float32, whose last
digit exceeds the seven decimals checked by ``assertAlmostEqual``. Tests of Fluid's time compare the two.
"""

from __future__ import annotations

import functools
import unittest
from collections.abc import Callable
from typing import Any

import numpy as np

_COMPARISONS = ("assertAlmostEqual", "assertNotAlmostEqual")


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, np.floating) else value


def _is_pythons(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, np.generic)


def _of_numbers(compare: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(compare)
    def compared(self: unittest.TestCase, first: Any, second: Any, *args: Any, **kwargs: Any) -> None:
        if _is_pythons(first) or _is_pythons(second):
            first, second = _number(first), _number(second)
        compare(self, first, second, *args, **kwargs)

    compared.of_numbers = True  # type: ignore[attr-defined]
    return compared


def install() -> None:
    """Compare NumPy numbers with Python numbers as doubles."""
    for name in _COMPARISONS:
        compare = getattr(unittest.TestCase, name)
        if not hasattr(compare, "of_numbers"):
            setattr(unittest.TestCase, name, _of_numbers(compare))
