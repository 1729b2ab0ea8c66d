"""A data set whose samples are found by index."""

from __future__ import annotations

from typing import Any

__all__ = ["Dataset"]


class Dataset:
    """Base class of data sets: subclasses define sample ``idx``, and the number of samples."""

    def __init__(self) -> None:
        pass

    def __getitem__(self, idx: int) -> Any:
        raise NotImplementedError(f"'__getitem__' not implement in class {type(self).__name__}")

    def __len__(self) -> int:
        raise NotImplementedError(f"'__len__' not implement in class {type(self).__name__}")
