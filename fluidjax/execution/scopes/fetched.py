"""The arrays that users fetch: NumPy's own, with the conversions of the NumPy that Fluid's scripts were written for.

Those scripts print ``"%f" % loss`` with a loss of shape [1]. NumPy before 2.4 took the one element of such an array for
a number; NumPy 2.4 does so for shape [] alone.
"""

from __future__ import annotations

from typing import Any, SupportsIndex

import numpy as np


class FetchedArray(np.ndarray):
    """An array whose only element converts to a Python number, whatever the number of axes.

    Views of it, what ufuncs compute with it and what it is joined to are such arrays too; reductions give NumPy's
    scalars, and copies made by ``numpy.array`` and pickles are plain arrays. ``fluidjax run`` gives these conversions
    to all arrays.
    """

    __array_priority__ = 0.5  # joining it with plain arrays gives its class

    def __float__(self) -> float:
        """The one element; TypeError when there are more, or none."""
        return float(_only(self))

    def __int__(self) -> int:
        """The one element, cut to a whole number; TypeError when there are more, or none."""
        return int(_only(self))

    def __complex__(self) -> complex:
        """The one element; TypeError when there are more, or none."""
        return complex(_only(self))

    def __repr__(self) -> str:
        return repr(self.view(np.ndarray))

    def __array_wrap__(self, array: np.ndarray, context: Any = None, return_scalar: bool = False) -> Any:
        """What a ufunc hands back: a scalar where it does so for plain arrays."""
        return array[()] if return_scalar else array.view(FetchedArray)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        """Pickled as a plain array: whoever reads the file needs NumPy alone."""
        return self.view(np.ndarray).__reduce_ex__(protocol)


def _only(array: np.ndarray) -> Any:
    if array.size != 1:
        raise TypeError(
            f"only arrays of one element convert to a Python number: expected size 1, received shape {array.shape};"
            " take one element (array[0]) or a mean first"
        )
    return array.item()


def fetched(value: Any) -> FetchedArray:
    """A copy of an array for the user, who may write into it."""
    return for_user(np.array(value))


def for_user(array: np.ndarray) -> FetchedArray:
    """An array that nobody else has, for the user."""
    return array.view(FetchedArray)
