"""The base of all loaders."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fluidjax.base.errors import EnforceNotMet, EOFException


class DataLoaderBase:
    """The base class of all loaders."""

    def __init__(self) -> None:
        self._places: list[Any] | None = None

    def __call__(self) -> DataLoaderBase:
        return self

    def __iter__(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} cannot be iterated; use DataLoader.from_generator")

    def next(self) -> Any:
        """The next item; raises StopIteration at the end of a pass."""
        return self.__next__()

    def __next__(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} cannot be iterated; use DataLoader.from_generator")


class Pass:
    """One pass over the batches of a loader, whose number is known."""

    def __init__(self, batches: Iterator[Any], number: int) -> None:
        self._batches, self._number = batches, number

    def __iter__(self) -> Pass:
        return self

    def __len__(self) -> int:
        return self._number

    def __next__(self) -> Any:
        return next(self._batches)

    next = __next__


def insist(condition: Any, expected: str, todo: str) -> None:
    """Raise AssertionError unless a condition holds."""
    if not condition:
        raise AssertionError(f"{expected}; {todo}")


def reader_failure(error: BaseException) -> BaseException:
    """What a script's reader raised, as an EnforceNotMet too: Fluid 1.8.5 says that, whatever the reader says.

    Errors whose class cannot be joined with another are left as they are.
    """
    if not isinstance(error, Exception) or isinstance(error, (EnforceNotMet, EOFException)):
        return error
    try:
        joined = _joined(type(error))(*error.args)
    except TypeError:
        return error
    joined.__dict__.update(error.__dict__)
    return joined.with_traceback(error.__traceback__)


def _joined(kind: type[Exception]) -> type[Exception]:
    def told(error: Exception) -> str:
        return f"{kind.__str__(error)}\nBlocking queue is killed because the data reader raises an exception"

    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__, "__str__": told}
    return type(kind.__name__, (kind, EnforceNotMet), names)
