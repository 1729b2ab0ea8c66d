"""The base of all loaders."""

from __future__ import annotations

from typing import Any


class DataLoaderBase:
    """The base class of all loaders."""

    def __init__(self) -> None:
        self._places: list[Any] | None = None

    def __call__(self) -> DataLoaderBase:
        return self

    def __iter__(self) -> Any:
        raise TypeError(f"{type(self).__name__} cannot be iterated; use DataLoader.from_generator")

    def next(self) -> Any:
        """The next item; raises StopIteration at the end of a pass."""
        return self.__next__()

    def __next__(self) -> Any:
        raise TypeError(f"{type(self).__name__} cannot be iterated; use DataLoader.from_generator")


def insist(condition: Any, expected: str, todo: str) -> None:
    """Raise AssertionError unless a condition holds."""
    if not condition:
        raise AssertionError(f"{expected}; {todo}")
