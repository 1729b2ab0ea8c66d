"""Batches loaded one after another for as long as loading them draws from the generators of the whole process.

Workers are threads, and share those generators: what a data set draws after seeding would depend on the others.
"""

from __future__ import annotations

import pickle
import random
import threading
from collections.abc import Callable
from typing import TypeVar

import numpy as np

_Result = TypeVar("_Result")


class Turns:
    """The turns of the batches of one pass; the first one that draws nothing sets the others free."""

    def __init__(self) -> None:
        self._due, self._free = 0, False
        self._changed = threading.Condition()

    def take(self, number: int, load: Callable[[], _Result]) -> _Result:
        """The result of ``load``, called when batch ``number`` is due."""
        with self._changed:
            self._changed.wait_for(lambda: self._free or self._due == number)
            before = None if self._free else _generators()
        try:
            return load()
        finally:
            if before is not None:
                with self._changed:
                    self._due, self._free = number + 1, _generators() == before
                    self._changed.notify_all()


def _generators() -> bytes:
    """The states of Python's and NumPy's generators, to be compared."""
    return pickle.dumps((random.getstate(), np.random.get_state()))
