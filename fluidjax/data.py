"""``fluid.data``: a variable that is fed, with the shape it is fed in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidjax.base.enums import VarType
from fluidjax.data_feeder import check_type
from fluidjax.framework import Variable, default_main_program

__all__ = ["data"]


def data(name: str, shape: Sequence[int | None], dtype: Any = "float32", lod_level: int = 0) -> Variable:
    """A variable to be fed. Feeds must match its shape and data type.

    Args:
        name: its name, under which it is fed.
        shape: all dims; None or -1 for those that vary between feeds (usually the batch).
        dtype: its data type.
        lod_level: the number of LoD levels of its feeds; 0 for plain arrays.

    Raises TypeError for a name or shape of another type, ValueError when the program has another such variable.

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
    """A fed variable in the default main program's global block."""
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
