"""Arrays that NumPy 1 left float32: times a float64 number (``np.sqrt(2)``) they are float64 since NumPy 2."""

from __future__ import annotations

import numpy as np

from fluidjax.execution.feeding import feed_checks


def install() -> None:
    """Round a float64 array fed to a float32 variable, with a warning; Fluid refuses it."""
    if np.lib.NumpyVersion(np.__version__) >= "2.0.0":
        feed_checks.rounded.add((np.dtype("float64"), np.dtype("float32")))
