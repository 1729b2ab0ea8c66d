"""``fluid.data``: declares a variable to be fed, with its full shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidjax.base.enums import VarType
from fluidjax.data_feeder import check_type
from fluidjax.framework import Variable, default_main_program

__all__ = ["data"]


def data(name: str, shape: Sequence[int | None], dtype: Any = "float32", lod_level: int = 0) -> Variable:
    """Declare a variable to be fed. Feeds must match its shape and dtype.

    Args:
        name: its name, used as the key in feeds.
        shape: all dimensions; None or -1 for those that vary between feeds (usually the batch).
        dtype: its dtype.
        lod_level: number of LoD levels of its feeds; 0 for plain arrays.

    Raises TypeError for an invalid name or shape, ValueError if the program has a different variable of that name.

    Examples:
        >>> fluid.data("image", [None, 1, 28, 28]).shape
        (-1, 1, 28, 28)
        >>> words = fluid.data("words", [None, 1], "int64", lod_level=1)
        >>> words.shape, words.lod_level
        ((-1, 1), 1)
    """
    check_type(name, "name", (bytes, str), "data")
    check_type(shape, "shape", (list, tuple), "data")
    return input_variable(name, [-1 if dim is None else dim for dim in shape], dtype, lod_level, need_check_feed=True)


def input_variable(
    name: str | bytes,
    shape: Sequence[int],
    dtype: Any,
    lod_level: int,
    type: Any = VarType.LOD_TENSOR,
    stop_gradient: bool = True,
    need_check_feed: bool = False,
) -> Variable:
    """Declare a fed variable in the global block of the default main program."""
    return (
        default_main_program()
        .global_block()
        .create_var(
            name=name.decode() if isinstance(name, bytes) else name,
            shape=list(shape),
            dtype=dtype,
            type=type,
            lod_level=lod_level,
            persistable=False,
            stop_gradient=stop_gradient,
            is_data=True,
            need_check_feed=need_check_feed,
        )
    )
