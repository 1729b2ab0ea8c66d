"""Whether what is fed suits its variable, and the errors that say it does not."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from fluidjax.base.errors import EnforceNotMet
from fluidjax.framework.callstack import depth_of_user
from lowering.dtypes import from_numpy, to_numpy
from lowering.program import VarView

# Data types of feeds that are converted to the declared one instead of refused, with a warning: (fed, declared).
rounded: set[tuple[np.dtype, np.dtype]] = set()


class MisfitFeedError(EnforceNotMet, ValueError):
    """What is fed does not fit its variable; of a reader's batch Fluid 1.8.5 says EnforceNotMet."""


class UnreadableFeedError(EnforceNotMet, TypeError, ValueError, RuntimeError):
    """What is fed is neither an array of numbers nor can it be made one.

    It has several bases: Fluid 1.8.5 raises ValueError for a text, RuntimeError for uneven lists and EnforceNotMet for
    arrays of objects.
    """


def from_python(var: VarView, fed: Any) -> np.ndarray:
    """Numbers and nested lists take the variable's dtype, as they carry none of their own."""
    try:
        array = np.asarray(fed)
    except ValueError:
        array = np.asarray(None)
    if array.dtype == object:
        raise UnreadableFeedError(
            f"feed {var.name!r}: expected an array, a LoDTensor or nested lists of equal lengths, received"
            f" {type(fed).__name__} that NumPy cannot make an array of; for ragged data use fluid.create_lod_tensor"
        )
    try:
        array = array.astype(to_numpy(var.dtype))
    except (ValueError, TypeError, OverflowError) as error:
        raise UnreadableFeedError(
            f"feed {var.name!r}: expected numbers that fit {to_numpy(var.dtype)}, received {type(fed).__name__}"
            f" {fed!r:.60}; feed an array of that data type"
        ) from error
    return array if array.ndim else array.reshape(1)


def checked(var: VarView, data: Any, *, ragged: bool = False) -> Any:
    """``data`` if its dtype and shape suit the variable; ValueError otherwise.

    A ``ragged`` feed has as many rows as its sequences say: no declaration counts them.
    """
    expected = to_numpy(var.dtype)
    if var.need_check_feed:
        shape = (-1, *data.shape[1:]) if ragged else data.shape
        if not shape_fits(var.shape, shape):
            raise _misfit(
                f"The fed Variable {var.name!r} should have dimensions = {len(var.shape)}, shape = {var.shape}, but"
                f" received fed shape {list(shape)} on each device",
                "-1 is any size. Reshape the data, or declare the variable with the shape you feed.",
            )
    if data.dtype != expected and _dtype_matters(var, data.dtype):
        if data.dtype.kind in "OSU":
            raise UnreadableFeedError(
                f"feed {var.name!r}: the data type does not match: expected an array of numbers, {expected}, received"
                f" {data.dtype}; make one with numpy.asarray(data, {str(expected)!r})"
            )
        if (data.dtype, expected) in rounded:
            warnings.warn(
                f"feed {var.name!r}: expected {expected}, received {data.dtype}, which is rounded; NumPy 1 keeps the"
                f" type of an array that meets a number. Convert it with array.astype({str(expected)!r}).",
                stacklevel=depth_of_user(),
            )
            return data.astype(expected)
        raise _misfit(
            f"The data type of fed Variable {var.name!r} must be {str(expected)!r}, but received {str(data.dtype)!r}",
            f"Convert it with array.astype({str(expected)!r}).",
        )
    return data


def _misfit(message: str, advice: str) -> ValueError:
    """The error in Fluid 1.8.5's words, which scripts compare; what to do is added as a note."""
    error = MisfitFeedError(message)
    error.add_note(advice)
    return error


def _dtype_matters(var: VarView, fed: np.dtype) -> bool:
    """Feeds of ``layers.data`` are taken as they are (see ``lowering.engine.kinds``), if Fluid has the type at all."""
    try:
        from_numpy(fed)
    except ValueError:
        return True
    return var.need_check_feed


def shape_fits(declared: tuple[int, ...], fed: tuple[int, ...]) -> bool:
    """Fluid compares the dimensions that were fed: trailing ones may be missing, as those of labels often are."""
    if len(fed) > len(declared) or (declared and not fed):
        return False
    return all(d < 0 or f < 0 or d == f for d, f in zip(declared, fed, strict=False))
