"""Layers that save tensors to files and load them, as ops of a program."""

from __future__ import annotations

from typing import Any

from fluidjax.framework import Variable
from fluidjax.layer_helper import LayerHelper

__all__ = ["load_combine", "save", "save_combine"]


def save(x: Variable, file_path: str, overwrite: bool = True) -> None:
    """Save the tensor ``x`` to a file of its own when the program runs.

    Args:
        x: the tensor.
        file_path: path of the file.
        overwrite: replace an existing file; otherwise the run raises.
    """
    LayerHelper("save").append_op(
        type="save", inputs={"X": [x]}, outputs={}, attrs={"file_path": file_path, "overwrite": overwrite}
    )


def save_combine(x: list[Variable], file_path: str, overwrite: bool = True) -> None:
    """Save a list of tensors to one file when the program runs; arguments as for ``save``."""
    LayerHelper("save_combine").append_op(
        type="save_combine", inputs={"X": x}, outputs={}, attrs={"file_path": file_path, "overwrite": overwrite}
    )


def load_combine(out: list[Any], file_path: str) -> None:
    """Load the tensors of a file written by ``save_combine`` into a list of variables, in order."""
    LayerHelper("load_combine").append_op(
        type="load_combine", inputs={}, outputs={"Out": out}, attrs={"file_path": file_path}
    )
