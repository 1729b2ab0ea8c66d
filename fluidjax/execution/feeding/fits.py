"""Whether a tensor fits the variable it is fed to, and the key that a run is remembered by, as in Fluid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fluidjax.base.enums import to_numpy_dtype
from fluidjax.base.values import LoDTensor
from fluidjax.framework.var_desc import VarDescView


def dimension_is_compatible_with(first: Sequence[int | None], second: Sequence[int | None]) -> bool:
    """Whether two shapes can be of one tensor; None and negative numbers fit anything."""
    return len(first) == len(second) and all(
        a == b or a is None or b is None or min(a, b) < 0 for a, b in zip(first, second, strict=True)
    )


def diff_tensor_shape(tensor: LoDTensor, var: VarDescView, num_places: int = 1) -> list[int] | None:
    """The shape of a place's share of a tensor when it does not fit the variable's, else None; -1 fits anything.

    The last axes of the variable may be missing, as in Fluid 1.8.5.
    """
    rows, *others = tensor.shape()
    shape = [-(-rows // num_places), *others]
    declared = var.shape()
    fits = len(shape) <= len(declared) and dimension_is_compatible_with(shape, declared[: len(shape)])
    return None if fits else shape


def check_feed_shape_type(var: Any, feed: LoDTensor, num_places: int = 1) -> bool:
    """True when a tensor can be fed to a variable; to one that is not made by ``fluid.data`` every tensor can.

    Raises:
        ValueError: its shape, or that of a place's share of it, or its data type is another.
    """
    if not var.desc.need_check_feed():
        return True
    shape = diff_tensor_shape(feed, var.desc, num_places)
    if shape is not None:
        raise ValueError(
            f"The fed Variable {var.name!r} should have dimensions = {len(var.shape)}, shape = {var.shape!r}, but"
            f" received fed shape {shape!r} on each device; reshape the data, or declare -1 for a size that varies"
        )
    if feed._dtype() != var.dtype:
        wanted, fed = str(to_numpy_dtype(var.dtype)), str(to_numpy_dtype(feed._dtype()))
        raise ValueError(
            f"The data type of fed Variable {var.name!r} must be {wanted!r}, but received {fed!r}; convert it with"
            f" array.astype({wanted!r})"
        )
    return True


def program_cache_key(program: Any, feed: Any, fetch_list: Sequence[Any]) -> str:
    """A text that distinguishes a run's program, fed names and fetched names from those of others."""
    feeds = [feed] if isinstance(feed, Mapping) else feed or ()
    names = [name for each in feeds for name in each] + [getattr(var, "name", var) for var in fetch_list]
    return f"{id(program)}{names}"
