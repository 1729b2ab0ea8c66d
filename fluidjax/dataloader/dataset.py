"""A data set whose samples are found by index."""

from __future__ import annotations

from typing import Any

__all__ = ["Dataset"]


class Dataset:
    """Base of data sets: subclasses say what sample ``idx`` is, and how many there are."""

    def __init__(self) -> None:
        pass

    def __getitem__(self, idx: int) -> Any:
        raise NotImplementedError(f"'__getitem__' not implement in class {type(self).__name__}")

    def __len__(self) -> int:
        raise NotImplementedError(f"'__len__' not implement in class {type(self).__name__}")
